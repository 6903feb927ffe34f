"""Queue without an engine: the rounds themselves, for an embedded store. A job is its round."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import RoundRow
from tuner.fleet.queue.port import Job


class TableQueue:
    """See `tuner.fleet.queue.port.Queue`. Callers are one after the other where the database is SQLite."""

    def enlist(self, session: Session) -> int | None:
        """Nothing to do."""
        return None

    def dismiss(self, session: Session, worker: int | None) -> None:
        """Nothing to do."""

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        """The rows are the jobs."""
        return [round_id for round_id, _ in rounds]

    def take(self, session: Session, queue: str, worker: int | None) -> Job | None:
        """The queued round of highest priority."""
        query = select(RoundRow.id).where(RoundRow.queue == queue, RoundRow.status == "queued")
        ahead = query.order_by(RoundRow.priority.desc(), RoundRow.campaign_problem_id).limit(1)
        found = session.scalar(ahead.with_for_update(skip_locked=True))
        return Job(found, found, taken=True) if found is not None else None

    def end(self, session: Session, job: int) -> None:
        """The round's own status says it."""

    def withdraw(self, session: Session, job: int) -> bool:
        """Whether the round still waits."""
        status = session.scalar(select(RoundRow.status).where(RoundRow.id == job).with_for_update())
        return status == "queued"

    def jobs(self, session: Session) -> list[Job]:
        """Open rounds."""
        query = select(RoundRow.id, RoundRow.status).where(RoundRow.status.in_(("queued", "running")))
        return [Job(found, found, status == "running") for found, status in session.execute(query)]
