"""Store: studies, measurements and bests in a database. Every call is one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import ColumnElement, Engine, Executable, Row, Select, func, select, update
from sqlalchemy.exc import DataError, IntegrityError, StatementError
from sqlalchemy.orm import Session, sessionmaker

from space.config import Config
from space.problem import Problem
from tuner.errors import Quarantined, StoreError, UnstorableValue
from tuner.evidence import best_changes, bests, changes, codec, measurements, postgresql, refutations, sqlite, studies
from tuner.evidence.backup import write_backup
from tuner.evidence.database import FAILURES, current_revision, engine_for_notes, open_engine, unusable
from tuner.evidence.models import BestRow, CounterRow, DeviceRow, MeasurementRow, ProblemRow
from tuner.evidence.physics import out_of_range
from tuner.evidence.records import (
    Best,
    BestChange,
    Removed,
    StoredMeasurement,
    StudyKey,
    StudyRecord,
    StudyStatus,
    Unreadable,
)
from tuner.evidence.schema import METADATA
from workers.measurement import Measurement, Policy, Provenance, Stage

#: Measurements that `every` reads at a time.
_PAGE: Final = 1_000


class Store:
    """A database of measurements. Threads may share one; processes may share the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(engine.execution_options(**{sqlite.WRITES: True}), expire_on_commit=False)
        self._notes = engine_for_notes(engine)
        self._url = engine.url.render_as_string(hide_password=True)
        self._recent: tuple[int, Provenance, measurements.Place, int] | None = None

    @classmethod
    def open(cls, url: str, create: bool = True, connections: int = postgresql.MOST_CONNECTIONS) -> Store:
        """Opens the store at a SQLAlchemy URL; creates and migrates it as needed.

        Args:
            connections: most connections to PostgreSQL.

        Raises:
            StoreError: it cannot be opened; the message has the reason and the fix.
        """
        return cls(open_engine(url, create, connections))

    @property
    def embedded(self) -> bool:
        """Whether the store is a SQLite file, used by this machine only."""
        return self._engine.dialect.name == "sqlite"

    def unnamed(self, text: str) -> str:
        """A text without this store's URL, which names a folder: what clients of a service may read."""
        return text.replace(f" {self._url}", "")

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()
        self._notes.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ studies

    def begin_study(self, key: StudyKey, fresh: bool = False) -> StudyRecord:
        """The latest study of `key` in any status, or a new one.

        Args:
            fresh: begin a new study even if one exists.
        """
        with self.transaction(writes=True) as session:
            problem = studies.problem_id(session, key.problem)
            device = studies.device_id(session, key.device, key.device_kind)
            return studies.begin(session, key, problem, device, fresh)

    def finish_study(self, study_id: int, because: str) -> None:
        """Marks a study as finished, with the reason."""
        with self.transaction(writes=True) as session:
            studies.set_status(session, study_id, StudyStatus.FINISHED, because)

    def reopen_study(self, study_id: int) -> None:
        """Marks a finished study as running again: its budget was raised."""
        with self.transaction(writes=True) as session:
            studies.set_status(session, study_id, StudyStatus.RUNNING, "")

    # ------------------------------------------------------------------------------------- measurements

    def record(self, study_id: int, measurement: Measurement, provenance: Provenance) -> StoredMeasurement:
        """Stores one screen measurement; it is on disk when this returns.

        Raises:
            AlreadyMeasured: the study has one of this config and stage; nothing was written.
        """
        return self.record_many(study_id, [measurement], provenance)[0]

    def record_many(
        self, study_id: int, taken: Sequence[Measurement], provenance: Provenance
    ) -> list[StoredMeasurement]:
        """Stores measurements together, all or none.

        Final measurements get the study's next series: finals may be repeated after more screening.

        Raises:
            AlreadyMeasured: one of them exists; nothing was written.
        """
        recent = self._recent
        with self.transaction(writes=True) as session:
            if recent is None or recent[:2] != (study_id, provenance):
                place = measurements.Place.of(session, study_id)
                recent = study_id, provenance, place, measurements.provenance_id(session, provenance)
            prepared = measurements.prepare(session, recent[2], taken, provenance, recent[3])
            kept = measurements.insert_prepared(session, prepared)
        # Both rows exist from now on, and a run stores hundreds of measurements under the same two.
        self._recent = recent
        return kept

    def measurements_of(self, study_id: int, stage: Stage | None = None) -> list[StoredMeasurement]:
        """A study's measurements in the order they were taken."""
        query = select(MeasurementRow).where(MeasurementRow.study_id == study_id)
        with self.transaction() as session:
            return measurements.read(session, query if stage is None else query.where(MeasurementRow.stage == stage))

    def final_series(self, study_id: int) -> list[StoredMeasurement]:
        """The correct measurements of the last finals; empty when something was screened after them."""
        with self.transaction() as session:
            return measurements.final_series(session, study_id)

    def finals_beside(self, measurement_id: int) -> list[StoredMeasurement]:
        """The correct measurements of the finals that one belongs to; empty if it belongs to none."""
        with self.transaction() as session:
            return measurements.finals_beside(session, measurement_id)

    def refuted_in(self, study_id: int) -> set[str]:
        """Texts of configs that were right when a study screened them, and whose build was found wrong elsewhere."""
        with self.transaction() as session:
            return refutations.refuted_in(session, study_id)

    def page(
        self,
        *where: ColumnElement[bool],
        after: int = 0,
        limit: int = 100,
        problem: Problem | None = None,
        device: str | None = None,
        outcome: str | None = None,
        policy: str | None = None,
        stage: str | None = None,
    ) -> list[StoredMeasurement]:
        """Measurements with an id above `after`, ordered by id."""
        query = select(MeasurementRow).where(*where)
        if problem is not None:
            query = query.where(MeasurementRow.problem.has(key=problem.key))
        if device is not None:
            query = query.where(MeasurementRow.device.has(name=device))
        for column, wanted in (
            (MeasurementRow.outcome, outcome), (MeasurementRow.policy, policy), (MeasurementRow.stage, stage),
        ):  # fmt: skip
            query = query if wanted is None else query.where(column == wanted)
        with self.transaction() as session:
            return measurements.page(session, query, after, limit)

    def every(self, device: str, problem: Problem | None = None) -> Iterator[StoredMeasurement]:
        """Measurements of a device, or of one problem on it, that may be learned from: not revoked, nothing right of a
        build that was found wrong, and no impossible times. Ordered by id and read page by page."""
        after = 0
        while page := self.page(measurements.MAY_TEACH, after=after, limit=_PAGE, problem=problem, device=device):
            yield from (each for each in page if not out_of_range(each.measurement))
            after = page[-1].id

    # -------------------------------------------------------------------------------------------- bests

    def set_bests(self, found: Sequence[Best]) -> list[str]:
        """Stores bests of one problem on one device, one for each policy, unless the old one is better.

        Returns:
            Sentences on those that did not become best, with the reasons.

        Raises:
            StoreError: the database refuses one, because its measurement is missing or not correct.
        """
        with self.transaction(writes=True) as session:
            return bests.put(session, found)

    def best_changes(self, problem: Problem, device: str, after: int = 0, limit: int = 1_000) -> list[BestChange]:
        """Changes of the bests of a problem on a device with an id above `after`, in order."""
        with self.transaction() as session:
            return best_changes.page(session, problem, device, after, limit)

    def roll_back(self, problem: Problem, device: str, number: int) -> BestChange:
        """Undoes a change: restores the best that it replaced. Returns the new change.

        Raises:
            NothingMeasured: there is no such change, or nothing to go back to.
        """
        with self.transaction(writes=True) as session:
            made = bests.roll_back(session, problem, device, number)
            return best_changes.page(session, problem, device, made - 1, 1)[0]

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The best of one problem on a device model under a policy, or the served one; one measured on a GPU before a
        replayed one."""
        query = bests.SELECTED.where(ProblemRow.key == problem.key, DeviceRow.name == device, _of(policy))
        return next(iter(self._bests(query.order_by(DeviceRow.kind))), None)

    def bests(self, device: str | None = None) -> list[Best]:
        """All served bests, or those of one device model, ordered by problem key."""
        query = bests.SELECTED.where(BestRow.served).order_by(ProblemRow.key, DeviceRow.kind)
        return self._bests(query if device is None else query.where(DeviceRow.name == device))

    def bests_by_policy(self, device: str) -> list[Best]:
        """Every best of one device model, ordered by problem key; of each problem, the served one first."""
        order = ProblemRow.key, DeviceRow.kind, BestRow.served.desc(), BestRow.policy
        return self._bests(bests.SELECTED.where(DeviceRow.name == device).order_by(*order))

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> list[Best]:
        """Bests on `device` of problems that differ from `problem` only in extents, nearest first: of each the one
        under a policy, else the served one; what a GPU measured hides replays, and a newer version's are left out."""
        head, tail = problem.key_around_shape()
        query = bests.SELECTED.where(DeviceRow.name == device, BestRow.served | _of(policy))
        query = query.where(ProblemRow.key.like(f"{head}%{tail}"), ProblemRow.key != problem.key)
        found = codec.preferred(self._bests(query.order_by(ProblemRow.key, DeviceRow.kind), StoreError), policy)
        return sorted(found, key=lambda best: problem.distance(best.problem))

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        """Texts of the configs that were found wrong on a problem and a device model."""
        with self.transaction(slow=False) as session:
            return refutations.wrong_for(session, problem.key, device)

    def winners_near(self, problem: Problem, device: str, study_id: int | None = None) -> tuple[Config, ...]:
        """As `bests.winners_near`: own configs that a study of a problem begins with, the most promising first."""
        with self.transaction() as session:
            return bests.winners_near(session, problem, device, study_id)

    def bests_after(self, version: int, limit: int) -> list[tuple[int, Best | Unreadable | Removed]]:
        """Served bests set or removed after `version`, each with the number of its change, in order.

        A best that was replaced several times appears once, in its current state.
        """
        query = bests.SELECTED.where(BestRow.version > version, BestRow.served).order_by(BestRow.version).limit(limit)
        with self.transaction() as session:
            # PostgreSQL shows each statement what is committed by then: a late removal would hide a best before it.
            last = changes.read(session)["best"]
            rows = session.execute(query.where(BestRow.version <= last))
            found = [(row.version, bests.followed(row._asdict())) for row in rows]
            gone = best_changes.removed_between(session, version, last, limit)
        return sorted([*found, *gone], key=lambda change: change[0])[:limit]

    def best_index(self, rows: int) -> Iterator[tuple[str, str, Sequence[Sequence[Any]]]]:
        """Every served best in parts: name and kind of a device; key, kind, M, N and K of its problems.

        Args:
            rows: of a part.
        """
        query = select(ProblemRow.key, ProblemRow.kind, ProblemRow.m, ProblemRow.n, ProblemRow.k)
        query = query.join(BestRow, BestRow.problem_id == ProblemRow.id).where(BestRow.served)
        with self.transaction() as session:
            connection = session.connection()
            postgresql.allow_pauses(connection)
            postgresql.plan_for_all_rows(connection)
            for device in session.execute(select(DeviceRow.id, DeviceRow.name, DeviceRow.kind)).all():
                # In the order of both tables' indexes: the first rows come at once, and nothing is sorted on disk.
                of_device = query.where(BestRow.device_id == device.id).order_by(BestRow.problem_id)
                if self.embedded:
                    # The driver's own rows: SQLAlchemy's take as long again.
                    fetch = connection.execute(of_device).cursor.fetchmany
                    parts = iter(partial(fetch, rows), [])
                else:
                    parts = connection.execution_options(yield_per=rows).execute(of_device).partitions()
                yield from ((device.name, device.kind, part) for part in parts)

    def served_of(self, device: str, keys: Sequence[str]) -> list[Best | StoreError]:
        """The served bests of these problems on a device model; one measured on a GPU after a replayed one."""
        # Without a session, which would cost as much as the query.
        with self._told(), self._engine.connect() as connection:
            rows = connection.execute(bests.SERVED_OF, {"device": device, "keys": keys})
            return [bests.readable(row._asdict()) for row in rows]

    def _bests(self, query: Select[Any], without: type[StoreError] = Quarantined) -> list[Best]:
        with self.transaction() as session:
            return bests.read(session, query, without)

    # ---------------------------------------------------------------------------------------- the store

    def devices(self) -> list[tuple[str, str]]:
        """Name and kind of every device with a best."""
        query = select(DeviceRow.name, DeviceRow.kind).join(BestRow, BestRow.device_id == DeviceRow.id).distinct()
        with self.transaction() as session:
            return sorted((name, kind) for name, kind in session.execute(query))

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        with self.transaction() as session:
            tables = METADATA.sorted_tables
            return {table.name: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}

    def revision(self) -> str:
        """The schema's revision."""
        with self.transaction() as session:
            return current_revision(session.connection()) or "none"

    def changed(self) -> dict[str, int]:
        """What `tuner.evidence.changes.read` reads; cheap enough to poll several times a second."""
        if self.embedded:
            # Past SQLAlchemy, which takes ten times as long, in each poll of a service that answers requests meanwhile.
            with self._told(), closing(self._engine.raw_connection()) as raw:
                return changes.read_embedded(raw)
        # Without a session, which doubles the processor time.
        with self._told(), self._engine.connect() as connection:
            postgresql.allow_silence(connection, postgresql.QUICK_SECONDS)
            return changes.read(connection)

    def check_writable(self) -> None:
        """Writes a row that means nothing, or raises.

        Raises:
            StoreError: the database accepts no writes, or doesn't answer within a few seconds.
        """
        statement = update(CounterRow).where(CounterRow.name == "probe").values(value=CounterRow.value)
        with self._told(), self._notes.connect() as connection:
            postgresql.allow_silence(connection, postgresql.QUICK_SECONDS)
            sqlite.check_room(connection)
            connection.execute(statement)
            connection.rollback()  # A file's room, lock and permission are enough: a commit would wait for the disk.

    def backup(self, path: Path) -> dict[str, int]:
        """Writes a backup; returns the number of rows by table.

        Raises:
            StoreError: the file exists or cannot be written.
        """
        return write_backup(self._engine, path)

    def note(self, statement: Executable, parameters: Mapping[str, object]) -> Sequence[Row[*tuple[Any, ...]]]:
        """The rows of one statement that is its own transaction, and that a crash may lose.

        Raises:
            StoreError: the database refused or cannot be used.
        """
        with self._told(), self._notes.begin() as connection:
            return connection.execute(statement, parameters).all()

    @contextmanager
    def transaction(self, writes: bool = False, slow: bool | None = None) -> Iterator[Session]:
        """A session that commits at its end, or rolls back on any error.

        Args:
            writes: the session will write; on SQLite it then waits its turn at the start.
            slow: a statement may take longer than `SHORT_SECONDS`; by default those of a session that only reads may.

        Raises:
            StoreError: the database refused or cannot be used.
        """
        slow = not writes if slow is None else slow
        with self._told(), (self._writers if writes else self._readers).begin() as session:
            if not (slow or self.embedded):
                postgresql.allow_silence(session.connection(), postgresql.SHORT_SECONDS)
            yield session

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            said = str(error.orig).splitlines()[0]
            raise StoreError(f"the store refused it ({said}): only correct, stored measurements are served") from error
        except (DataError, OverflowError, UnicodeEncodeError) as error:
            cause = error.orig if isinstance(error, DataError) else error
            raise UnstorableValue(f"the store can't hold a value ({str(cause).splitlines()[0]}): change it") from error
        except StatementError as error:
            if isinstance(error.orig, UnstorableValue):
                raise error.orig from None
            if isinstance(error.orig, OverflowError | UnicodeEncodeError):
                raise UnstorableValue(f"the store can't hold a value ({error.orig}): change it") from error
            raise unusable(self._url, error) from error
        except FAILURES as error:
            raise unusable(self._url, error) from error


def _of(policy: Policy | None) -> ColumnElement[bool]:
    return BestRow.served.is_(True) if policy is None else BestRow.policy == policy.value
