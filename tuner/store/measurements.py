"""Measurements in a session: inserted together, read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Select, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload

from tuner.errors import AlreadyMeasured
from tuner.records import StoredMeasurement
from tuner.store import changes, codec
from tuner.store.models import ConfigRow, MeasurementRow, ProvenanceRow, StudyRow
from tuner.store.rows import id_of, ids_by_key
from workers.measurement import Measurement, Provenance, Stage

#: What `codec.stored` reads beside the row itself.
WHOLE: Final = (
    joinedload(MeasurementRow.problem),
    joinedload(MeasurementRow.device),
    joinedload(MeasurementRow.config),
    joinedload(MeasurementRow.provenance),
)


def insert_many(
    session: Session, study_id: int, measurements: Sequence[Measurement], provenance: Provenance
) -> list[StoredMeasurement]:
    """Inserts measurements that belong together.

    Final measurements get the study's next series: finals may be taken again after more screening.

    Raises:
        AlreadyMeasured: one of them is there already; the session has to be rolled back.
    """
    return insert_prepared(session, prepare(session, study_id, measurements, provenance))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Measurements of a study, ready to be inserted.

    Attributes:
        rows: their columns, all but the series of finals.
    """

    study: StudyRow
    provenance: Provenance
    measurements: Sequence[Measurement]
    rows: list[dict[str, Any]]


def prepare(
    session: Session, study_id: int, measurements: Sequence[Measurement], provenance: Provenance
) -> Prepared:
    """Everything that `insert_prepared` need not do while all other writers of measurements wait for it."""
    study = session.get_one(StudyRow, study_id, options=(joinedload(StudyRow.device),))
    by = {"digest": provenance.digest, "content": asdict(provenance)}
    provenance_id = id_of(session, ProvenanceRow, by, unique=("digest",))
    configs = ids_by_key(session, ConfigRow, [_config_columns(measurement) for measurement in measurements])
    rows = [
        codec.measurement_columns(measurement) | {
            "study_id": study_id, "problem_id": study.problem_id, "device_id": study.device_id,
            "provenance_id": provenance_id, "config_id": configs[measurement.config.key],
        }
        for measurement in measurements
    ]  # fmt: skip
    return Prepared(study, provenance, measurements, rows)


def insert_prepared(session: Session, prepared: Prepared) -> list[StoredMeasurement]:
    """Inserts what was prepared. One transaction after the other does this: it should end soon thereafter.

    Raises:
        AlreadyMeasured: one of them is there already; the session has to be rolled back.
    """
    study, measurements = prepared.study, prepared.measurements
    # Raised after everything that may wait for another writer, and locked until the end: ids become visible
    # in their order, and whoever reads by id misses none.
    changes.count(session, "measurement")
    now = datetime.now(UTC)
    finals = any(measurement.stage == "final" for measurement in measurements)
    series = last_series(session, study.id) + 1 if finals else 0
    rows = [
        row | {"taken_at": now, "series": series if measurement.stage == "final" else 0}
        for row, measurement in zip(prepared.rows, measurements, strict=True)
    ]
    ids = _insert(session, study.id, measurements, rows)
    return [
        StoredMeasurement(place, study.id, study.device.name, study.device.kind, now, prepared.provenance, measurement)
        for place, measurement in zip(ids, measurements, strict=True)
    ]


def _insert(
    session: Session, study_id: int, measurements: Sequence[Measurement], rows: list[dict[str, Any]]
) -> list[int]:
    if not rows:
        return []
    statement = insert(MeasurementRow).returning(MeasurementRow.id, sort_by_parameter_order=True)
    try:
        return list(session.scalars(statement, rows))
    except IntegrityError as error:
        if "unique" not in str(error.orig).lower():
            raise
        named = measurements[0].config.key if len(measurements) == 1 else f"one of {len(measurements)} candidates"
        raise AlreadyMeasured(
            f"{named} was measured in study {study_id}: a study measures a config once in a stage; start afresh to "
            f"measure it again"
        ) from error


def read(session: Session, query: Select[MeasurementRow]) -> list[StoredMeasurement]:
    """What a query selects, in order of id."""
    return [codec.stored(row) for row in session.scalars(query.options(*WHOLE).order_by(MeasurementRow.id))]


def of_study(session: Session, study_id: int, stage: Stage | None = None) -> list[StoredMeasurement]:
    """A study's measurements in the order in which they were taken."""
    query = select(MeasurementRow).where(MeasurementRow.study_id == study_id)
    return read(session, query if stage is None else query.where(MeasurementRow.stage == stage))


def final_series(session: Session, study_id: int) -> list[StoredMeasurement]:
    """The correct measurements of the last finals; empty when something was screened after them."""
    of_one = select(func.max(MeasurementRow.id)).where(MeasurementRow.study_id == study_id)
    screened = session.scalar(of_one.where(MeasurementRow.stage == "screen")) or 0
    final = session.scalar(of_one.where(MeasurementRow.stage == "final")) or 0
    if final <= screened:
        return []
    query = select(MeasurementRow).where(MeasurementRow.study_id == study_id, MeasurementRow.stage == "final")
    of_last = query.where(MeasurementRow.series == last_series(session, study_id), MeasurementRow.outcome == "correct")
    return read(session, of_last)


def last_series(session: Session, study_id: int) -> int:
    """The number of the study's last finals; 0 before the first."""
    return session.scalar(select(func.max(MeasurementRow.series)).where(MeasurementRow.study_id == study_id)) or 0


def _config_columns(measurement: Measurement) -> dict[str, Any]:
    config = measurement.config
    return {"key": config.key, "family": config.family, "knobs": config.knobs}
