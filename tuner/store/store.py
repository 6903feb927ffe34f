"""Store: the one way to studies, measurements and bests. Every call is a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, Select, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, joinedload, sessionmaker

from space.problem import Problem
from tuner.errors import AlreadyMeasured, StoreError
from tuner.records import Best, StoredMeasurement, StudyKey, StudyRecord, StudyStatus
from tuner.store import changes, codec
from tuner.store.database import FAILURES, WRITES, current_revision, open_engine, unusable
from tuner.store.models import Base, BestRow, ConfigRow, DeviceRow, MeasurementRow, ProblemRow, ProvenanceRow, StudyRow
from tuner.store.rows import id_of
from workers.measurement import Measurement, Policy, Provenance, Stage

_WHOLE = (
    joinedload(MeasurementRow.problem),
    joinedload(MeasurementRow.device),
    joinedload(MeasurementRow.config),
    joinedload(MeasurementRow.provenance),
)


class Store:
    """A database of measurements. Threads may share one; processes may share the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(engine.execution_options(**{WRITES: True}), expire_on_commit=False)
        self._url = engine.url.render_as_string(hide_password=True)

    @classmethod
    def open(cls, url: str, create: bool = True) -> Store:
        """The store at a SQLAlchemy URL, made and migrated as needed.

        Raises:
            StoreError: it can't be opened, with the reason and the fix.
        """
        return cls(open_engine(url, create))

    def close(self) -> None:
        """Lets go of all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ studies

    def begin_study(self, key: StudyKey, fresh: bool = False) -> StudyRecord:
        """The latest study of `key`, whatever its status, or a new one.

        Args:
            fresh: begin a new one even if there is one already.
        """
        with self.transaction(writes=True) as session:
            same = {
                "problem_id": _problem_id(session, key.problem),
                "device_id": id_of(session, DeviceRow, {"name": key.device, "kind": key.device_kind}),
                "policy": key.policy.value,
                "family": key.family,
                "source": key.source,
            }
            latest = session.scalars(
                select(StudyRow).filter_by(**same).order_by(StudyRow.generation.desc()).limit(1)
            ).one_or_none()
            if latest is None or fresh:
                generation = latest.generation + 1 if latest else 0
                latest = StudyRow(
                    **same,
                    generation=generation,
                    status=StudyStatus.RUNNING.value,
                    stopped_because="",
                    created_at=_now(),
                )
                session.add(latest)
                session.flush()
            return codec.study(latest, key)

    def finish_study(self, study_id: int, because: str) -> None:
        """Marks a study as finished, with the reason why it stopped."""
        self._set_status(study_id, StudyStatus.FINISHED, because)

    def reopen_study(self, study_id: int) -> None:
        """Marks a finished study as running again: its budget was raised."""
        self._set_status(study_id, StudyStatus.RUNNING, "")

    def _set_status(self, study_id: int, status: StudyStatus, because: str) -> None:
        with self.transaction(writes=True) as session:
            change = update(StudyRow).where(StudyRow.id == study_id)
            session.execute(change.values(status=status.value, stopped_because=because))

    # ------------------------------------------------------------------------------------- measurements

    def record(self, study_id: int, measurement: Measurement, provenance: Provenance) -> StoredMeasurement:
        """Keeps one screen measurement; it is on the disk when this returns.

        Raises:
            AlreadyMeasured: the study has one of this config and stage; nothing was written.
        """
        return self.record_many(study_id, [measurement], provenance)[0]

    def record_many(
        self, study_id: int, measurements: Sequence[Measurement], provenance: Provenance
    ) -> list[StoredMeasurement]:
        """Keeps measurements that belong together, all or none of them.

        Final measurements get the study's next series: finals may be taken again after more screening.

        Raises:
            AlreadyMeasured: one of them is there already; nothing was written.
        """
        with self.transaction(writes=True) as session:
            study = session.get_one(StudyRow, study_id, options=(joinedload(StudyRow.device),))
            by = {"digest": provenance.digest, "content": asdict(provenance)}
            provenance_id = id_of(session, ProvenanceRow, by, unique=("digest",))
            finals = any(measurement.stage == "final" for measurement in measurements)
            now = _now()
            common = {
                "study_id": study_id, "problem_id": study.problem_id, "device_id": study.device_id,
                "provenance_id": provenance_id, "taken_at": now,
                "series": self._last_series(session, study_id) + 1 if finals else 0,
            }  # fmt: skip
            ids = [self._insert(session, common, measurement) for measurement in measurements]
            return [
                StoredMeasurement(place, study_id, study.device.name, study.device.kind, now, provenance, m)
                for place, m in zip(ids, measurements, strict=True)
            ]

    def _insert(self, session: Session, common: dict[str, Any], measurement: Measurement) -> int:
        named = measurement.config
        row = {"key": named.key, "family": named.family, "knobs": named.knobs}
        values = common | codec.measurement_columns(measurement)
        values["config_id"] = id_of(session, ConfigRow, row, unique=("key",))
        try:
            made = session.execute(insert(MeasurementRow).values(**values).returning(MeasurementRow.id))
        except IntegrityError as error:
            if "unique" not in str(error.orig).lower():
                raise
            raise AlreadyMeasured(
                f"{measurement.config.key} was measured in study {common['study_id']} ({measurement.stage}): "
                f"a study measures a config once; start afresh to measure it again"
            ) from error
        return int(made.scalar_one())

    def measurements_of(self, study_id: int, stage: Stage | None = None) -> list[StoredMeasurement]:
        """A study's measurements in the order in which they were taken."""
        query = select(MeasurementRow).where(MeasurementRow.study_id == study_id)
        if stage is not None:
            query = query.where(MeasurementRow.stage == stage)
        return self._read(query)

    def final_series(self, study_id: int) -> list[StoredMeasurement]:
        """The correct measurements of the last finals; empty when something was screened after them."""
        with self.transaction() as session:
            series = self._last_series(session, study_id)
            of_study = select(func.max(MeasurementRow.id)).where(MeasurementRow.study_id == study_id)
            screened = session.scalar(of_study.where(MeasurementRow.stage == "screen")) or 0
            final = session.scalar(of_study.where(MeasurementRow.stage == "final")) or 0
        if final <= screened:
            return []
        query = select(MeasurementRow).where(MeasurementRow.study_id == study_id, MeasurementRow.stage == "final")
        return self._read(query.where(MeasurementRow.series == series, MeasurementRow.outcome == "correct"))

    def _last_series(self, session: Session, study_id: int) -> int:
        return session.scalar(select(func.max(MeasurementRow.series)).where(MeasurementRow.study_id == study_id)) or 0

    def page(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        problem: Problem | None = None,
        device: str | None = None,
        outcome: str | None = None,
    ) -> list[StoredMeasurement]:
        """Measurements with an id above `after`, in order of id."""
        query = select(MeasurementRow).where(MeasurementRow.id > after).limit(limit)
        if problem is not None:
            query = query.where(MeasurementRow.problem.has(key=problem.key))
        if device is not None:
            query = query.where(MeasurementRow.device.has(name=device))
        if outcome is not None:
            query = query.where(MeasurementRow.outcome == outcome)
        return self._read(query)

    def _read(self, query: Select[MeasurementRow]) -> list[StoredMeasurement]:
        with self.transaction() as session:
            rows = session.scalars(query.options(*_WHOLE).order_by(MeasurementRow.id))
            return [codec.stored(row) for row in rows]

    # -------------------------------------------------------------------------------------------- bests

    def set_best(self, best: Best) -> None:
        """Makes `best` the answer for its problem, device and policy.

        Raises:
            StoreError: its measurement is not in the store, or is not correct: the database refuses it.
        """
        with self.transaction(writes=True) as session:
            measured = best.winner.measurement
            device = {"name": best.device, "kind": best.device_kind}
            place = {
                "problem_id": _problem_id(session, best.problem),
                "device_id": id_of(session, DeviceRow, device),
                "policy": measured.policy.value,
            }
            row = session.scalars(select(BestRow).filter_by(**place)).one_or_none() or BestRow(**place)
            row.measurement_id, row.outcome = best.winner.id, measured.outcome.value
            row.versus_first = asdict(best.versus_first) if best.versus_first else None
            row.versus_best = asdict(best.versus_best) if best.versus_best else None
            row.runner_up = best.runner_up.key if best.runner_up else ""
            row.tried, row.failed = best.tried, dict(best.failed)
            row.version = changes.count(session, "best")
            session.add(row)

    def best(self, problem: Problem, device: str, policy: Policy) -> Best | None:
        """The best of one problem on a device model; a GPU's own before a replay's."""
        query = select(BestRow).join(BestRow.device).where(DeviceRow.name == device, BestRow.policy == policy.value)
        query = query.where(BestRow.problem.has(key=problem.key)).order_by(DeviceRow.kind)
        return next(iter(self._bests(query.limit(1))), None)

    def bests(self, device: str | None = None) -> list[Best]:
        """All bests, or those of one device model, ordered by problem."""
        query = select(BestRow).join(BestRow.problem).join(BestRow.device)
        query = query.order_by(ProblemRow.key, DeviceRow.kind)
        return self._bests(query if device is None else query.where(DeviceRow.name == device))

    def neighbours(self, problem: Problem, device: str) -> list[Best]:
        """Bests on `device` whose problems differ from `problem` in their extents alone."""
        head, _, tail = problem.key.rpartition(problem.shape)
        query = select(BestRow).join(BestRow.problem).join(BestRow.device).where(DeviceRow.name == device)
        query = query.where(ProblemRow.key.like(f"{head}%{tail}"), ProblemRow.key != problem.key)
        return self._bests(query.order_by(ProblemRow.key, DeviceRow.kind))

    def _bests(self, query: Select[BestRow]) -> list[Best]:
        options = (
            joinedload(BestRow.problem),
            joinedload(BestRow.device),
            *(joinedload(BestRow.measurement).options(option) for option in _WHOLE),
        )
        with self.transaction() as session:
            return [codec.best(row) for row in session.scalars(query.options(*options))]

    # ---------------------------------------------------------------------------------------- the store

    def devices(self) -> list[tuple[str, str]]:
        """Name and kind of every device that has a best."""
        query = select(DeviceRow.name, DeviceRow.kind).join(BestRow, BestRow.device_id == DeviceRow.id).distinct()
        with self.transaction() as session:
            return sorted((name, kind) for name, kind in session.execute(query))

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        with self.transaction() as session:
            tables = Base.metadata.sorted_tables
            return {table.name: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}

    def revision(self) -> str:
        """The schema's revision."""
        with self.transaction() as session:
            return current_revision(session.connection()) or "none"

    def content_version(self) -> str:
        """Changes whenever a best or a measurement is added or replaced."""
        with self.transaction() as session:
            measured = session.scalar(select(func.max(MeasurementRow.id))) or 0
            return f"{measured}.{session.scalar(select(func.max(BestRow.version))) or 0}"

    def changed(self) -> dict[str, int]:
        """Every counter of `tuner.store.changes`; cheap enough to ask several times a second."""
        with self.transaction() as session:
            return changes.read(session)

    @contextmanager
    def transaction(self, writes: bool = False) -> Iterator[Session]:
        """A session that commits at its end, or rolls back when anything fails.

        Args:
            writes: it will write; on SQLite it then waits its turn at the start.

        Raises:
            StoreError: the database refused or can't be used.
        """
        try:
            with (self._writers if writes else self._readers).begin() as session:
                yield session
        except IntegrityError as error:
            raise StoreError(
                f"the store refused it ({error.orig}): only correct, stored measurements are served"
            ) from error
        except FAILURES as error:
            raise unusable(self._url, error) from error


def _problem_id(session: Session, problem: Problem) -> int:
    row = {"key": problem.key, "m": problem.m, "n": problem.n, "k": problem.k}
    return id_of(session, ProblemRow, row, unique=("key",))


def _now() -> datetime:
    return datetime.now(UTC)
