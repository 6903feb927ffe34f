"""Codec: rows to plain values and back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from space.config import Config
from space.errors import SpaceError
from space.family import config_named
from space.kind import problem_from_key
from space.problem import Problem
from tuner.errors import NewerContent, Quarantined, StoreError
from tuner.evidence.physics import MOST_RATIO, out_of_range, quarantined, unreadable
from tuner.evidence.records import Author, Best, Ratio, StoredMeasurement
from workers.measurement import Clocks, Measurement, Policy, Provenance, Verification, from_document, from_json, to_json

# `gemmtune best` reads rows without SQLAlchemy.
if TYPE_CHECKING:
    from tuner.evidence.models import BestRow, MeasurementRow

T = TypeVar("T")

#: Columns of a best that `best_of` reads besides those of its measurement.
OF_BEST: Final = ("versus_first", "versus_best", "runner_up", "tried", "failed", "served")

_log = logging.getLogger("gemmtune.bests")


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
    return _stored(_columns(row))


def best_columns(row: BestRow) -> dict[str, Any]:
    """What `best_of` reads; needs `bests.WHOLE` loaded."""
    return _columns(row.measurement) | {name: getattr(row, name) for name in OF_BEST}


def bests_of(rows: Iterable[Mapping[str, Any]], without: type[StoreError] = Quarantined) -> list[Best]:
    """The bests in rows of `bests.SELECTED`, in their order, without those that can't be true.

    Args:
        without: errors of what is left out; `StoreError` for those of another version too.

    Raises:
        NewerContent: this version cannot read one, and it is not left out.
    """
    found = []
    for columns in rows:
        try:
            found.append(best_of(columns))
        except without as error:
            _log.error("a best is left out: %s", error)
    return found


def preferred(found: Iterable[Best], policy: Policy | None) -> list[Best]:
    """One best of each problem, in order: of the first's kind of device the one under a policy, else the first."""
    chosen: dict[str, Best] = {}
    for best in found:
        first = chosen.setdefault(best.problem.key, best)
        if best.policy is policy and best.device_kind == first.device_kind:
            chosen[best.problem.key] = best
    return list(chosen.values())


def best_of(columns: Mapping[str, Any]) -> Best:
    """A best with its evidence, from the columns of `bests.SELECTED`.

    Raises:
        Quarantined: no clock can have measured it, its card is unknown, or a document in its row is malformed.
        NewerContent: this version cannot read it.
    """
    winner, device, key, failed = _stored(columns), columns["device"], columns["problem_key"], columns["failed"]
    wrong = quarantined(device) or out_of_range(winner.measurement)
    if not isinstance(failed, dict):
        wrong = wrong or "its failures are not counts by outcome"
    if wrong:
        raise Quarantined(f"measurement {winner.id}, best of {key} on {device}: {wrong}")
    return Best(
        problem=problem_of(key),
        device=device,
        device_kind=columns["device_kind"],
        winner=winner,
        versus_first=ratio(columns["versus_first"]),
        versus_best=ratio(columns["versus_best"]),
        runner_up=known_config(columns["runner_up"]),
        tried=columns["tried"],
        failed=dict(failed),
        served=columns["served"],
    )


def _columns(row: MeasurementRow) -> dict[str, Any]:
    """A measurement's columns, with those that `bests.SELECTED` joins to them."""
    return {column.name: getattr(row, column.name) for column in row.__table__.columns} | {
        "problem_key": row.problem.key, "config_key": row.config.key, "device": row.device.name,
        "device_kind": row.device.kind, "provenance": json.dumps(row.provenance.content),
        "revocation_id": row.revoked.revocation_id if row.revoked else None,
    }  # fmt: skip


def _stored(columns: Mapping[str, Any]) -> StoredMeasurement:
    config, number = config_of(columns["config_key"]), columns["id"]
    try:
        check, clocks = _optional(Verification, columns["verification"]), _optional(Clocks, columns["clocks"])
        provenance = _provenance(columns["provenance"])
        measurement = Measurement.of_columns(columns["problem_key"], config, columns, check, clocks)
        wrong = unreadable(measurement)
    except ValidationError as error:
        wrong_fields = f"{error.error_count()} fields of its {error.title} are wrong"
        raise Quarantined(f"measurement {number}: {wrong_fields}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise Quarantined(f"measurement {number}: {error}") from error
    if wrong:
        raise Quarantined(f"measurement {number}: {wrong}")
    return StoredMeasurement(
        number, columns["study_id"], columns["device"], columns["device_kind"], utc(columns["taken_at"]), provenance,
        measurement, Author(columns["worker_id"], columns["round_id"], columns["token_id"]),
        columns["revocation_id"] is not None,
    )  # fmt: skip


def ratio(content: dict[str, Any] | None) -> Ratio | None:
    """A stored ratio; None for one that times cannot have, or that is malformed."""
    if not content:
        return None
    try:
        found = Ratio(**content)
        return found if all(1 / MOST_RATIO < n < MOST_RATIO for n in (found.value, found.low, found.high)) else None
    except TypeError:
        return None


def problem_of(key: str) -> Problem:
    """The problem that a stored key names.

    Raises:
        NewerContent: no problem kind of this version reads the key.
    """
    with _of_this_version("problem"):
        return problem_from_key(key)


def config_of(key: str) -> Config:
    """The config that a stored key names.

    Raises:
        NewerContent: no family of this version knows such a config.
    """
    with _of_this_version("config"):
        return config_named(key)


def known_config(key: str) -> Config | None:
    """The config that a stored key names; None without one, and for one that this version does not know."""
    try:
        return config_of(key) if key else None
    except NewerContent:
        return None


@contextmanager
def _of_this_version(what: str) -> Iterator[None]:
    try:
        yield
    except (SpaceError, ValueError, TypeError) as error:
        raise NewerContent(
            f"the store holds a {what} that this version cannot read ({error}): upgrade gemmtune, or restore a "
            "backup if the store is damaged"
        ) from error


@lru_cache(maxsize=1_024)
def _provenance(content: str) -> Provenance:
    return from_json(Provenance, content)


def provenance_of(content: Mapping[str, object]) -> Provenance | None:
    """A stored provenance, without what only a newer version knows; None for one that is malformed."""
    try:
        return from_document(Provenance, content)
    except ValidationError:
        return None


def _optional(kind: type[T], content: dict[str, Any] | None) -> T | None:
    return None if content is None else from_document(kind, content)


def utc(moment: datetime) -> datetime:
    """A stored time with its time zone."""
    # SQLite keeps no time zone; we write UTC.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
