"""Queue of an embedded store: the tables themselves, without an engine. Heartbeats are `worker.beat_at`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, DateTime, Executable, bindparam, exists, or_, select, update
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow

Item, Round = CampaignProblemRow, RoundRow
_NEXT: Final = (
    select(Item.id)
    .join(CampaignRow, CampaignRow.id == Item.campaign_id)
    .where(Item.queue == bindparam("queue"), Item.status == "waiting", CampaignRow.status == "running")
    .where(~exists().where(Round.problem_id == Item.problem_id, Round.queue == Item.queue, Round.status == "running"))
    .order_by(
        (CampaignRow.id == bindparam("first")).desc(), CampaignRow.priority.desc(), Item.started.desc(),
        CampaignRow.id, Item.id,
    )
    .limit(1)
)


def queue_name(device: str, arch: str, kind: str) -> str:
    """The queue of a device model and arch; replays never mix with rounds on a GPU."""
    return f"{device}/{arch}/{kind}"


class Job(NamedTuple):
    """A taken job, which is a problem's next round.

    Attributes:
        id: None in a queue without an engine.
        item_id: of the campaign's problem.
    """

    id: int | None
    item_id: int


class TableQueue:
    """The queue of campaigns on SQLite, where writers run one after the other.

    There is one queue per device model, arch and kind. Problems of the campaign with the highest priority go first,
    those that have been started before the others, then first come, first served. Every call joins the caller's
    transaction. Campaign tables hold the rest: leases (which fence late reports), attempts, and one running round per
    problem.

    Args:
        first: id of a campaign whose problems go before all others.

    Attributes:
        registered: condition on `WorkerRow`: the queue still knows the worker.
        heartbeat_at: time of the last heartbeat of a `WorkerRow`.
        heartbeat: statement with parameters `worker` and `token`: records a heartbeat of a registered worker of this
            token that is not gone, locks its row and returns status, the database's time, queue, engine_id and slot;
            no row for any other worker.
        presence: the same without recording one, for a transaction that may wait for others.
    """

    registered: ColumnElement[bool] = WorkerRow.engine_id.is_not(None)
    heartbeat_at: ColumnElement[datetime] = WorkerRow.beat_at.expression
    heartbeat: Executable = (
        update(WorkerRow)
        .where(WorkerRow.id == bindparam("worker"), WorkerRow.status != "gone", registered)
        .where(WorkerRow.token_id.is_not_distinct_from(bindparam("token")))
        .values(beat_at=bindparam(None, callable_=lambda: datetime.now(UTC), type_=DateTime(timezone=True)))
        .returning(WorkerRow.status, WorkerRow.beat_at, WorkerRow.queue, WorkerRow.engine_id, WorkerRow.slot)
        .execution_options(synchronize_session=False)
    )
    #: Writers run one after the other: no heartbeat is left out.
    presence: Executable = heartbeat

    def __init__(self, first: int | None = None) -> None:
        self._first = first

    def register(self, session: Session) -> int:
        """Registers a worker; returns its number, which `take` needs."""
        return 0

    def unregister(self, session: Session, engine_id: int) -> None:
        """Forgets a worker. Its job stays taken until it is released."""

    def prune(self, session: Session, seconds: float) -> None:
        """Forgets every worker whose last heartbeat is older than `seconds`, or came before the clock was set back."""
        moment, apart = datetime.now(UTC), timedelta(seconds=seconds)
        silent = or_(WorkerRow.beat_at < moment - apart, WorkerRow.beat_at > moment + apart)
        session.execute(update(WorkerRow).where(silent).values(engine_id=None))

    def take(self, session: Session, queue: str, engine_id: int) -> Job | None:
        """Takes the next job; None when no job waits. Its problem may have stopped waiting meanwhile."""
        item_id = session.scalar(_NEXT, {"queue": queue, "first": self._first or 0})
        return None if item_id is None else Job(None, item_id)

    def release(self, session: Session, job: int | None, again: bool) -> None:
        """Ends a taken job, or makes it wait again; does nothing when it no longer exists."""

    def align(self, session: Session, queue: str | None = None) -> int:
        """Makes jobs of the waiting problems of running campaigns, and deletes all others; returns how many.

        A problem that runs in another campaign gets its job afterwards.

        Args:
            queue: make jobs only in this one, and delete none.
        """
        return 0

    def mismatches(self, session: Session) -> list[str]:
        """The changes that `align` would make, as phrases."""
        return []
