"""Measurements in a session: inserted together, read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
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
    study = session.get_one(StudyRow, study_id, options=(joinedload(StudyRow.device),))
    by = {"digest": provenance.digest, "content": asdict(provenance)}
    provenance_id = id_of(session, ProvenanceRow, by, unique=("digest",))
    configs = ids_by_key(session, ConfigRow, [_config_columns(measurement) for measurement in measurements])
    # Raised after everything that may wait for another writer, and locked until the end: ids become visible
    # in their order, and whoever reads by id misses none.
    changes.count(session, "measurement")
    series, now = last_series(session, study_id) + 1, datetime.now(UTC)
    rows = [
        codec.measurement_columns(measurement) | {
            "study_id": study_id, "problem_id": study.problem_id, "device_id": study.device_id,
            "provenance_id": provenance_id, "taken_at": now, "config_id": configs[measurement.config.key],
            "series": series if measurement.stage == "final" else 0,
        }
        for measurement in measurements
    ]  # fmt: skip
    ids = _insert(session, study_id, measurements, rows)
    return [
        StoredMeasurement(place, study_id, study.device.name, study.device.kind, now, provenance, measurement)
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
