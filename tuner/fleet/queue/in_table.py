"""Queue of an embedded store, without an engine: a job is its round, and heartbeats are `worker.beat_at`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, DateTime, Executable, bindparam, select, update
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import RoundRow, WorkerRow


class TableQueue:
    """`Queue` on SQLite, where writers run one after the other."""

    registered: ColumnElement[bool] = WorkerRow.engine_id.is_not(None)
    heartbeat_at: ColumnElement[datetime] = WorkerRow.beat_at.expression
    heartbeat: Executable = (
        update(WorkerRow)
        .where(WorkerRow.id == bindparam("worker"), WorkerRow.status != "gone", registered)
        .values(beat_at=bindparam(None, callable_=lambda: datetime.now(UTC), type_=DateTime(timezone=True)))
        .returning(WorkerRow.status, WorkerRow.beat_at, WorkerRow.queue, WorkerRow.engine_id)
        .execution_options(synchronize_session=False)
    )

    def register(self, session: Session) -> int:
        return 0

    def unregister(self, session: Session, engine_id: int) -> None:
        pass

    def prune(self, session: Session, seconds: float) -> None:
        silent = update(WorkerRow).where(WorkerRow.beat_at < datetime.now(UTC) - timedelta(seconds=seconds))
        session.execute(silent.values(engine_id=None))

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        return [round_id for round_id, _ in rounds]

    def take(self, session: Session, queue: str, engine_id: int) -> int | None:
        query = select(RoundRow.job_id).where(RoundRow.queue == queue, RoundRow.status == "queued", RoundRow.job_id > 0)
        return session.scalar(query.order_by(RoundRow.priority.desc(), RoundRow.campaign_problem_id).limit(1))

    def retry(self, session: Session, job: int, queue: str, round_id: int, priority: int) -> int:
        return round_id

    def end(self, session: Session, job: int) -> None:
        pass

    def withdraw(self, session: Session, jobs: Sequence[int]) -> list[int]:
        return list(session.scalars(select(RoundRow.id).where(RoundRow.id.in_(jobs), RoundRow.status == "queued")))

    def jobless(self, session: Session) -> list[int]:
        # Rounds from a backup.
        return list(session.scalars(select(RoundRow.id).where(RoundRow.status == "queued", RoundRow.job_id.is_(None))))

    def strays(self, session: Session) -> list[int]:
        return []
