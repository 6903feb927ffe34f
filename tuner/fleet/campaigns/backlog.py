"""Backlog: waiting problems; a short window of them is queued as rounds.

The backlog may hold hundreds of thousands of problems; the engine's claims stay fast because only a window of it is
queued. Problems that have been started go first: they end sooner, and their next round often meets the worker that
has them prepared.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import Select, Table, bindparam, exists, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow
from tuner.fleet.campaigns.clock import now
from tuner.fleet.queue.port import Queue

OPEN: Final = ("queued", "running")
#: Started problems that are queued even when the window is full; there are rarely more than workers.
_MOST_STARTED: Final = 64
#: A waiting problem and its campaign's priority.
_Waiting = tuple[CampaignProblemRow, int]


def queue_name(device: str, arch: str, kind: str) -> str:
    """The queue of a device model and arch; replays never mix with rounds on a GPU."""
    return f"{device}/{arch}/{kind}"


def fill_window(session: Session, queue: Queue, name: str, window: int) -> int:
    """Queues rounds for waiting problems, and returns how many.

    Args:
        name: of the queue.
        window: most queued rounds; problems that have been started are queued beyond it.
    """
    chosen = [(row, priority) for row, priority in session.execute(_STARTED, {"queue": name})]
    waiting = select(func.count()).select_from(RoundRow).where(RoundRow.queue == name, RoundRow.status == "queued")
    room = window - (session.scalar(waiting) or 0)
    # Not for every place that becomes free: queueing many costs as little as queueing one.
    if room >= max(window // 4, 1):
        chosen += _fresh(session, name, room)
    if not chosen:
        return 0
    at = now(session)
    # All writers insert in one order, so that two of them at the same problems never deadlock.
    rows = [_round(item, priority, at) for item, priority in sorted(chosen, key=lambda entry: entry[0].problem_id)]
    inserted = session.execute(_inserting(session.get_bind().dialect.name), rows)
    # Back in the order of each campaign's list.
    made = sorted(inserted, key=lambda row: int(row.campaign_problem_id))
    if not made:
        return 0
    jobs = queue.put(session, name, [(row.id, row.priority) for row in made])
    session.execute(_SET_JOB, [{"round": row.id, "job": job} for row, job in zip(made, jobs, strict=True)])
    session.execute(_OPENED, {"items": [row.campaign_problem_id for row in made]})
    return len(made)


def requeue(session: Session, queue: Queue, item: CampaignProblemRow, job: int, at: datetime) -> None:
    """Queues the next round of a waiting problem with the job of its last, which has ended and was flushed.

    The job ends where the problem's campaign does not run, or the problem has ended.
    """
    priority = None
    if item.status == "waiting":
        priority = session.scalar(_PRIORITY, {"campaign": item.campaign_id})
    if priority is None:
        queue.end(session, job)
        return
    dialect = session.get_bind().dialect.name
    made = session.execute(_inserting(dialect), [_round(item, priority, at)]).one_or_none()
    if made is None:
        queue.end(session, job)
        return
    job = queue.retry(session, job, item.queue, made.id, made.priority)
    session.execute(_SET_JOB, [{"round": made.id, "job": job}])
    item.status = "open"


def _fresh(session: Session, name: str, most: int) -> list[_Waiting]:
    """Problems not yet started, one campaign at a time: the first may have as many as needed."""
    item = CampaignProblemRow
    running = select(CampaignRow.id, CampaignRow.priority).where(CampaignRow.status == "running")
    found: list[_Waiting] = []
    for campaign, priority in session.execute(running.order_by(CampaignRow.priority.desc(), CampaignRow.id)).all():
        if len(found) >= most:
            break
        query = _waiting(started=False).where(item.campaign_id == campaign).order_by(item.id)
        locked = query.limit(most - len(found)).with_for_update(skip_locked=True)
        found += [(row, priority) for row in session.scalars(locked, {"queue": name})]
    return found


def _waiting(started: bool) -> Select[Any]:
    """Waiting problems of a queue, except those with an open round in another campaign."""
    item = CampaignProblemRow
    open_elsewhere = exists().where(
        RoundRow.problem_id == item.problem_id, RoundRow.queue == item.queue, RoundRow.status.in_(OPEN)
    )
    query = select(item).where(item.status == "waiting", item.queue == bindparam("queue"), item.started == started)
    return query.where(~open_elsewhere)


def _round(item: CampaignProblemRow, priority: int, at: datetime) -> dict[str, Any]:
    return {
        "campaign_problem_id": item.id, "problem_id": item.problem_id, "queue": item.queue, "status": "queued",
        "priority": 2 * priority + item.started, "announced_stage": "", "announced": [],
        "created_at": at, "busy_seconds": 0.0, "measured": 0, "reason": "",
    }  # fmt: skip


_STARTED: Final = (
    _waiting(started=True)
    .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    .add_columns(CampaignRow.priority)
    .where(CampaignRow.status == "running")
    .order_by(CampaignRow.priority.desc(), CampaignRow.id, CampaignProblemRow.id)
    .limit(_MOST_STARTED)
    .with_for_update(of=CampaignProblemRow, skip_locked=True)
)
# Statements on tables, built once: building one, or synchronizing rows with objects, costs as much as running it.
_ROUND: Final = cast(Table, RoundRow.__table__)
_ITEM: Final = cast(Table, CampaignProblemRow.__table__)
_PRIORITY: Final = select(CampaignRow.priority).where(
    CampaignRow.id == bindparam("campaign"), CampaignRow.status == "running"
)
_SET_JOB: Final = update(_ROUND).where(_ROUND.c.id == bindparam("round")).values(job_id=bindparam("job"))
_OPENED: Final = update(_ITEM).where(_ITEM.c.id.in_(bindparam("items", expanding=True))).values(status="open")


@cache
def _inserting(dialect: str) -> ReturningInsert[int, int, int]:
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(_ROUND).on_conflict_do_nothing()
    made: ReturningInsert[int, int, int] = insert.returning(
        _ROUND.c.id, _ROUND.c.priority, _ROUND.c.campaign_problem_id
    )
    return made
