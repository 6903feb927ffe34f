"""Codec: rows to plain values and back."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from space.config import Config
from space.errors import SpaceError
from space.problem import Problem
from space.registry import config_named, problem_from_key
from tuner.errors import StoreError
from tuner.evidence.models import BestRow, MeasurementRow, StudyRow
from tuner.evidence.records import Best, Ratio, StoredMeasurement, StudyKey, StudyRecord, StudyStatus
from workers.measurement import Clocks, Measurement, Outcome, Policy, Provenance, Verification, from_json, to_json


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """A measurement's columns, foreign keys excluded."""
    check, clocks = measurement.verification, measurement.clocks
    return {
        "stage": measurement.stage,
        "policy": measurement.policy.value,
        "outcome": measurement.outcome.value,
        "median_us": measurement.median_us if measurement.samples_us else None,
        "samples_us": list(measurement.samples_us),
        "detail": measurement.detail,
        # Through our own JSON, which can represent an infinite error.
        "verification": json.loads(to_json(check)) if check else None,
        "clocks": asdict(clocks) if clocks else None,
        "build_digest": measurement.build_digest,
        "note": measurement.note,
    }


def stored(row: MeasurementRow) -> StoredMeasurement:
    """A measurement with study, device and provenance; needs `measurements.WHOLE` loaded."""
    measurement = Measurement(
        problem_key=row.problem.key,
        config=config_of(row.config.key),
        stage="final" if row.stage == "final" else "screen",
        policy=Policy(row.policy),
        outcome=Outcome(row.outcome),
        samples_us=tuple(row.samples_us),
        detail=row.detail,
        verification=_optional(Verification, row.verification),
        clocks=_optional(Clocks, row.clocks),
        build_digest=row.build_digest,
        note=row.note,
    )
    provenance = _provenance(json.dumps(row.provenance.content))
    return StoredMeasurement(
        row.id, row.study_id, row.device.name, row.device.kind, utc(row.taken_at), provenance, measurement
    )


def study(row: StudyRow, key: StudyKey) -> StudyRecord:
    return StudyRecord(row.id, key, StudyStatus(row.status), utc(row.created_at), row.stopped_because)


def best(row: BestRow) -> Best:
    """A best with its evidence; needs `bests.WHOLE` loaded."""
    return Best(
        problem=problem_of(row.problem.key),
        device=row.device.name,
        device_kind=row.device.kind,
        winner=stored(row.measurement),
        versus_first=ratio(row.versus_first),
        versus_best=ratio(row.versus_best),
        runner_up=config_of(row.runner_up) if row.runner_up else None,
        tried=row.tried,
        failed=dict(row.failed),
    )


def ratio(content: dict[str, Any] | None) -> Ratio | None:
    return Ratio(**content) if content else None


def problem_of(key: str) -> Problem:
    """The problem that a stored key names.

    Raises:
        StoreError: no problem kind of this version reads the key.
    """
    try:
        return problem_from_key(key)
    except SpaceError as error:
        raise StoreError(
            f"the store holds a problem that this version cannot read ({error}): upgrade gemmtune"
        ) from error


def config_of(key: str) -> Config:
    """The config that a stored key names.

    Raises:
        StoreError: no family of this version knows such a config.
    """
    try:
        return config_named(key)
    except SpaceError as error:
        raise StoreError(
            f"the store holds a config that this version does not know ({error}): upgrade gemmtune"
        ) from error


@lru_cache(maxsize=1_024)
def _provenance(content: str) -> Provenance:
    return from_json(Provenance, content)


def _optional(kind: type[Any], content: dict[str, Any] | None) -> Any:  # noqa: ANN401
    if content is None:
        return None
    try:
        return from_json(kind, json.dumps(content))
    except ValidationError as error:
        raise StoreError(
            f"the store holds a {kind.__name__} that cannot be read ({error.error_count()} fields): upgrade gemmtune"
        ) from error


def utc(moment: datetime) -> datetime:
    """A stored time with its time zone."""
    # SQLite keeps no time zone; we write UTC.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
