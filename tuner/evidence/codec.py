"""Codec: rows to plain values and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError

from space.config import Config
from space.errors import SpaceError
from space.problem import Problem
from space.registry import config_named, problem_from_key
from tuner.errors import Quarantined, StoreError
from tuner.evidence.models import BestRow, MeasurementRow
from tuner.evidence.physics import MOST_RATIO, out_of_range, quarantined, unreadable
from tuner.evidence.records import Author, Best, Ratio, StoredMeasurement
from workers.measurement import Clocks, Measurement, Provenance, Verification, from_json, to_json

T = TypeVar("T")


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """A measurement's columns, foreign keys excluded."""
    check, clocks = measurement.verification, measurement.clocks
    return measurement.columns() | {
        # Through our own JSON, which can represent an infinite error.
        "verification": json.loads(to_json(check)) if check else None,
        "clocks": asdict(clocks) if clocks else None,
    }


def stored(row: MeasurementRow) -> StoredMeasurement:
    """A measurement with study, device and provenance; needs `measurements.WHOLE` loaded."""
    check, clocks = _optional(Verification, row.verification), _optional(Clocks, row.clocks)
    columns = {column.name: getattr(row, column.name) for column in MeasurementRow.__table__.columns}
    config, provenance = config_of(row.config.key), _provenance(json.dumps(row.provenance.content))
    try:
        measurement = Measurement.of_columns(row.problem.key, config, columns, check, clocks)
    except (ValueError, TypeError) as error:
        raise Quarantined(f"measurement {row.id}: {error}") from error
    if wrong := unreadable(measurement):
        raise Quarantined(f"measurement {row.id}: {wrong}")
    return StoredMeasurement(
        row.id, row.study_id, row.device.name, row.device.kind, utc(row.taken_at), provenance, measurement,
        Author(row.worker_id, row.round_id, row.token_id), row.revoked is not None,
    )  # fmt: skip


def best(row: BestRow) -> Best:
    """A best with its evidence; needs `bests.WHOLE` loaded.

    Raises:
        Quarantined: no clock can have measured it, or its card is unknown.
        StoreError: this version cannot read it.
    """
    winner = stored(row.measurement)
    if wrong := quarantined(row.device.name) or out_of_range(winner.measurement):
        raise Quarantined(f"measurement {winner.id}, best of {row.problem.key} on {row.device.name}: {wrong}")
    return Best(
        problem=problem_of(row.problem.key),
        device=row.device.name,
        device_kind=row.device.kind,
        winner=winner,
        versus_first=ratio(row.versus_first),
        versus_best=ratio(row.versus_best),
        runner_up=config_of(row.runner_up) if row.runner_up else None,
        tried=row.tried,
        failed=dict(row.failed),
        served=row.served,
    )


def ratio(content: dict[str, Any] | None) -> Ratio | None:
    """A stored ratio; None for one that times cannot have."""
    if not content:
        return None
    with _of_this_version("ratio"):
        found = Ratio(**content)
        return found if all(1 / MOST_RATIO < n < MOST_RATIO for n in (found.value, found.low, found.high)) else None


def problem_of(key: str) -> Problem:
    """The problem that a stored key names.

    Raises:
        StoreError: no problem kind of this version reads the key.
    """
    with _of_this_version("problem"):
        return problem_from_key(key)


def config_of(key: str) -> Config:
    """The config that a stored key names.

    Raises:
        StoreError: no family of this version knows such a config.
    """
    with _of_this_version("config"):
        return config_named(key)


@contextmanager
def _of_this_version(what: str) -> Iterator[None]:
    try:
        yield
    except (SpaceError, ValueError, TypeError) as error:
        why = f"{error.error_count()} fields" if isinstance(error, ValidationError) else error
        raise StoreError(f"the store holds a {what} that this version cannot read ({why}): upgrade gemmtune") from error


@lru_cache(maxsize=1_024)
def _provenance(content: str) -> Provenance:
    return from_json(Provenance, content)


def _optional(kind: type[T], content: dict[str, Any] | None) -> T | None:
    with _of_this_version(kind.__name__):
        return None if content is None else from_json(kind, json.dumps(content))


def utc(moment: datetime) -> datetime:
    """A stored time with its time zone."""
    # SQLite keeps no time zone; we write UTC.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
