"""Measurements in a session: inserted together, read whole."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from sqlalchemy import Select, Table, and_, exists, func, insert, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from tuner.errors import AlreadyMeasured, StoreError
from tuner.evidence import changes, codec
from tuner.evidence.columns import check_text
from tuner.evidence.models import ConfigRow, MeasurementRow, ProvenanceRow, RevokedRow, StudyRow
from tuner.evidence.records import NOBODY, Author, Outcome, StoredMeasurement
from tuner.evidence.refutations import REFUTED
from tuner.evidence.rows import id_of, ids_by_key
from workers.measurement import Measurement, Provenance

_log = logging.getLogger("gemmtune.measurements")
#: Relations that `codec.stored` reads.
WHOLE: Final = (
    joinedload(MeasurementRow.problem),
    joinedload(MeasurementRow.device),
    joinedload(MeasurementRow.config),
    joinedload(MeasurementRow.provenance),
    joinedload(MeasurementRow.revoked),
)
#: PostgreSQL's SQLSTATE.
_UNIQUE_VIOLATION: Final = "23505"
#: Conditions on a measurement: it was not revoked; and besides, its build was not found wrong.
NOT_REVOKED: Final = ~exists().where(RevokedRow.measurement_id == MeasurementRow.id)
IN_THE_RUNNING: Final = and_(NOT_REVOKED, ~REFUTED)
#: It may be learned from: a kernel that skips a wait is fast, right now and then, and no example.
MAY_TEACH: Final = and_(NOT_REVOKED, or_(MeasurementRow.outcome != Outcome.CORRECT.value, ~REFUTED))


@dataclass(frozen=True, slots=True)
class Place:
    """Where measurements belong: a study, with its problem and its device; and who takes them."""

    study_id: int
    problem_id: int
    device_id: int
    device: str
    device_kind: str
    author: Author = NOBODY

    @classmethod
    def of(cls, session: Session, study_id: int) -> Place:
        """The place of a study's measurements; it never changes."""
        study = session.get_one(StudyRow, study_id, options=(joinedload(StudyRow.device),))
        return cls(study.id, study.problem_id, study.device_id, study.device.name, study.device.kind)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Measurements of a study, ready to be inserted.

    Attributes:
        rows: their columns, except the series of finals and the time.
    """

    place: Place
    provenance: Provenance
    measurements: Sequence[Measurement]
    rows: list[dict[str, Any]]


def provenance_id(session: Session, provenance: Provenance) -> int:
    """Row id of a provenance; inserted if missing.

    Raises:
        UnstorableValue: one of its texts can't be stored.
    """
    content = asdict(provenance)
    for said in content.values():
        if isinstance(said, str):
            check_text(said)
    by = {"digest": provenance.digest, "content": content}
    return id_of(session, ProvenanceRow, by, unique=("digest",))


def prepare(
    session: Session, place: Place, measurements: Sequence[Measurement], provenance: Provenance,
    origin: int | None = None,
) -> Prepared:  # fmt: skip
    """Does all work for `insert_prepared` that needs no lock on other writers of measurements.

    Args:
        origin: row id of the provenance, if known.
    """
    origin = provenance_id(session, provenance) if origin is None else origin
    configs = ids_by_key(session, ConfigRow, [_config_columns(measurement) for measurement in measurements])
    rows = [
        codec.measurement_columns(measurement) | {
            "study_id": place.study_id, "problem_id": place.problem_id, "device_id": place.device_id,
            "provenance_id": origin, "config_id": configs[measurement.config.key],
        } | asdict(place.author)
        for measurement in measurements
    ]  # fmt: skip
    return Prepared(place, provenance, measurements, rows)


def insert_prepared(session: Session, prepared: Prepared, ids: bool = True) -> list[StoredMeasurement]:
    """Inserts prepared measurements. Transactions do this in turn, so end the transaction soon after.

    Args:
        ids: whether to fetch the new ids; if not, the result is empty.

    Raises:
        AlreadyMeasured: one of them exists; the session must be rolled back.
    """
    place, measurements = prepared.place, prepared.measurements
    # Incremented after everything that may wait for another writer, and locked until the end: ids become visible in
    # order, so readers by id miss none.
    changes.count(session, "measurement")
    now = datetime.now(UTC)
    finals = any(measurement.stage == "final" for measurement in measurements)
    series = last_series(session, place.study_id) + 1 if finals else 0
    rows = [
        row | {"taken_at": now, "series": series if measurement.stage == "final" else 0}
        for row, measurement in zip(prepared.rows, measurements, strict=True)
    ]
    numbers = _insert(session, place.study_id, measurements, rows, ids)
    return [
        StoredMeasurement(
            number, place.study_id, place.device, place.device_kind, now, prepared.provenance, measurement, place.author
        )
        for number, measurement in zip(numbers, measurements, strict=ids)
    ]


def _insert(
    session: Session, study_id: int, measurements: Sequence[Measurement], rows: list[dict[str, Any]], ids: bool
) -> list[int]:
    if not rows:
        return []
    # Into the table: no caller needs them as objects.
    statement = insert(cast(Table, MeasurementRow.__table__))
    try:
        if ids:
            return list(session.scalars(statement.returning(MeasurementRow.id, sort_by_parameter_order=True), rows))
        session.execute(statement, rows)
        return []
    except IntegrityError as error:
        if not _repeats(error):
            raise
        named = measurements[0].config.key if len(measurements) == 1 else f"one of {len(measurements)} candidates"
        raise AlreadyMeasured(
            f"{named} was already measured in study {study_id}: a study measures a config once per stage; start a "
            f"fresh study to measure it again"
        ) from error


def _repeats(error: IntegrityError) -> bool:
    """Whether a unique constraint refused it."""
    # A server speaks any language and quotes the row; SQLite has these words only, and so has our trigger.
    state = getattr(error.orig, "sqlstate", None)
    return state == _UNIQUE_VIOLATION if state else str(error.orig).startswith("UNIQUE constraint failed")


def read(
    session: Session, query: Select[MeasurementRow], without: type[StoreError] = StoreError
) -> list[StoredMeasurement]:
    """The measurements that a query selects, ordered by id, without those that can't be true and those of another
    version.

    Args:
        without: errors of what is left out; `Quarantined` where another version's are refused.
    """
    return _readable(session.scalars(query.options(*WHOLE).order_by(MeasurementRow.id)), without)


def page(session: Session, query: Select[MeasurementRow], after: int, limit: int) -> list[StoredMeasurement]:
    """The first `limit` measurements that a query selects with an id above `after`, as `read` gives them."""
    found: list[StoredMeasurement] = []
    while wanted := limit - len(found):
        part = query.where(MeasurementRow.id > after).order_by(MeasurementRow.id).limit(wanted)
        rows = session.scalars(part.options(*WHOLE)).all()
        found += _readable(rows)
        if len(rows) < wanted:
            break
        after = rows[-1].id
    return found


def _readable(rows: Iterable[MeasurementRow], without: type[StoreError] = StoreError) -> list[StoredMeasurement]:
    found = []
    for row in rows:
        try:
            found.append(codec.stored(row))
        except without as error:
            _log.error("left out: %s", error)
    return found


def final_series(session: Session, study_id: int) -> list[StoredMeasurement]:
    """The correct measurements in the running of the last finals, but for those of another version, which this one
    could not serve; empty when something was screened after them.
    """
    last = func.max(MeasurementRow.id)
    of_stages = select(last.filter(MeasurementRow.stage == "screen"), last.filter(MeasurementRow.stage == "final"))
    screened, final = session.execute(of_stages.where(MeasurementRow.study_id == study_id)).one()
    if (final or 0) <= (screened or 0):
        return []
    query = select(MeasurementRow).where(
        MeasurementRow.study_id == study_id, MeasurementRow.stage == "final", IN_THE_RUNNING
    )
    of_last = query.where(MeasurementRow.series == last_series(session, study_id), MeasurementRow.outcome == "correct")
    return read(session, of_last)


def finals_beside(session: Session, measurement_id: int) -> list[StoredMeasurement]:
    """The correct measurements of the finals that one belongs to, but for those of another version; empty if it belongs
    to none.
    """
    of_it = select(MeasurementRow.study_id, MeasurementRow.series).where(
        MeasurementRow.id == measurement_id, MeasurementRow.stage == "final"
    )
    its = session.execute(of_it).one_or_none()
    if its is None:
        return []
    of_study = select(MeasurementRow).where(MeasurementRow.study_id == its.study_id, MeasurementRow.stage == "final")
    beside = of_study.where(MeasurementRow.series == its.series, MeasurementRow.outcome == "correct", IN_THE_RUNNING)
    return read(session, beside)


def last_series(session: Session, study_id: int) -> int:
    """The number of the study's last finals; 0 before the first."""
    return session.scalar(select(func.max(MeasurementRow.series)).where(MeasurementRow.study_id == study_id)) or 0


def _config_columns(measurement: Measurement) -> dict[str, Any]:
    config = measurement.config
    return {"key": config.key, "family": config.family, "knobs": config.knobs}
