"""Feed: from the backlog of waiting problems to a short window of queued rounds.

The backlog may hold hundreds of thousands of problems; the engine's claims stay fast because only a window of
it is queued. Problems that were begun go first: they end sooner, and their next round likely meets the worker
that has them prepared.
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
#: Begun problems that are queued whether the window is full or not; there are never many more than workers.
_MOST_BEGUN: Final = 64
#: A problem whose turn has come, and its campaign's priority.
_Turn = tuple[CampaignProblemRow, int]


def queue_name(device: str, arch: str, kind: str) -> str:
    """The queue of a device model and arch; replays never mix with a GPU's own rounds."""
    return f"{device}/{arch}/{kind}"


def fill_window(session: Session, queue: Queue, name: str, window: int) -> int:
    """Queues a round for each problem whose turn has come; how many.

    Args:
        name: of the queue.
        window: most queued rounds of problems that were not begun.
    """
    chosen = _begun(session, name)
    waiting = select(func.count()).select_from(RoundRow).where(RoundRow.queue == name, RoundRow.status == "queued")
    room = window - (session.scalar(waiting) or 0)
    # Not for each place that gets free: many at a time cost as little as one.
    if room >= max(window // 4, 1):
        chosen += _fresh(session, name, room)
    return _queue_rounds(session, queue, name, chosen, now(session)) if chosen else 0


def queue_begun(session: Session, queue: Queue, name: str, at: datetime) -> None:
    """Queues a round for each problem that was begun and waits; what a round that ends does not leave to a sweep."""
    if chosen := _begun(session, name):
        _queue_rounds(session, queue, name, chosen, at)


def _begun(session: Session, name: str) -> list[_Turn]:
    """Waiting problems that were begun, by their campaign's priority; one statement, for every round that ends asks."""
    return [(row, priority) for row, priority in session.execute(_BEGUN, {"queue": name})]


def _fresh(session: Session, name: str, most: int) -> list[_Turn]:
    """Waiting problems that were not begun; campaign by campaign, for the first may have all that is wanted."""
    item = CampaignProblemRow
    running = select(CampaignRow.id, CampaignRow.priority).where(CampaignRow.status == "running")
    found: list[_Turn] = []
    for campaign, priority in session.execute(running.order_by(CampaignRow.priority.desc(), CampaignRow.id)).all():
        if len(found) >= most:
            break
        query = _waiting(started=False).where(item.campaign_id == campaign).order_by(item.id)
        locked = query.limit(most - len(found)).with_for_update(skip_locked=True)
        rows = session.scalars(locked, {"queue": name})
        found += [(row, priority) for row in rows]
    return found


def _waiting(started: bool) -> Select[Any]:
    """Waiting problems of a queue; those that another campaign has open wait on."""
    item = CampaignProblemRow
    open_elsewhere = exists().where(
        RoundRow.problem_id == item.problem_id, RoundRow.queue == item.queue, RoundRow.status.in_(OPEN)
    )
    query = select(item).where(item.status == "waiting", item.queue == bindparam("queue"), item.started == started)
    return query.where(~open_elsewhere)


_BEGUN: Final = (
    _waiting(started=True)
    .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    .add_columns(CampaignRow.priority)
    .where(CampaignRow.status == "running")
    .order_by(CampaignRow.priority.desc(), CampaignRow.id, CampaignProblemRow.id)
    .limit(_MOST_BEGUN)
    .with_for_update(of=CampaignProblemRow, skip_locked=True)
)


def _queue_rounds(session: Session, queue: Queue, name: str, turns: list[_Turn], at: datetime) -> int:
    rows = [
        {
            "campaign_problem_id": item.id, "problem_id": item.problem_id, "queue": name, "status": "queued",
            "priority": 2 * priority + item.started, "announced_stage": "", "announced": [],
            "created_at": at, "busy_seconds": 0.0, "measured": 0, "reason": "",
        }
        # In one order everywhere: two feeds that meet at the same problems wait for each other, never in a ring.
        for item, priority in sorted(turns, key=lambda turn: turn[0].problem_id)
    ]  # fmt: skip
    # In the order of their campaign's list.
    inserted = session.execute(_inserting(session.get_bind().dialect.name), rows)
    made = sorted(inserted, key=lambda row: int(row.campaign_problem_id))
    if not made:
        return 0
    jobs = queue.put(session, name, [(row.id, row.priority) for row in made])
    pairs = zip(made, jobs, strict=True)
    session.execute(_PUT, [{"round": row.id, "job": job} for row, job in pairs])
    session.execute(_OPENED, {"items": [row.campaign_problem_id for row in made]})
    return len(made)


# Made once, and of the tables: to make one, and to bring the rows to what objects hold, costs as much as to run it.
_ROUND: Final = cast(Table, RoundRow.__table__)
_ITEM: Final = cast(Table, CampaignProblemRow.__table__)
_PUT: Final = update(_ROUND).where(_ROUND.c.id == bindparam("round")).values(job_id=bindparam("job"))
_OPENED: Final = update(_ITEM).where(_ITEM.c.id.in_(bindparam("items", expanding=True))).values(status="open")


@cache
def _inserting(dialect: str) -> ReturningInsert[int, int, int]:
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(_ROUND).on_conflict_do_nothing()
    made: ReturningInsert[int, int, int] = insert.returning(
        _ROUND.c.id, _ROUND.c.priority, _ROUND.c.campaign_problem_id
    )
    return made
