"""Claims: selects a worker's next round and describes it to the worker.

A large fleet claims constantly, so a claim reads few columns, and its statements are built once.
"""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import Row, Table, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow
from tuner.evidence.models import ProblemRow
from tuner.fleet.campaigns.outcomes import finalists_next, suspects_next
from tuner.fleet.campaigns.records import CampaignBudget, RoundTask
from tuner.fleet.campaigns.workers import LiveWorker
from tuner.fleet.queue.in_table import Job, TableQueue
from workers.measurement import from_document

#: Obsolete jobs that one claim clears away before it gives up.
_MOST_OBSOLETE: Final = 50
Item, Round = CampaignProblemRow, RoundRow
# Statements are built once: building one, or synchronizing rows with objects, costs as much as running it.
_ITEMS: Final = (
    select(
        Item.id.label("item_id"), Item.problem_id, Item.started, Item.attempts, Item.suspects, Item.closing,
        Item.tried, Item.failed, ProblemRow.key, CampaignRow.budget, CampaignRow.priority,
    )
    .join(CampaignRow, CampaignRow.id == Item.campaign_id)
    .join(ProblemRow, ProblemRow.id == Item.problem_id)
)  # fmt: skip
_RUNNING: Final = (
    _ITEMS.add_columns(Round.id, Round.lease)
    .join(Round, Round.campaign_problem_id == Item.id)
    .where(Round.worker_id == bindparam("worker"), Round.status == "running")
)
_WAITING: Final = _ITEMS.where(
    Item.id == bindparam("item"), Item.status == "waiting", CampaignRow.status == "running"
).with_for_update(of=Item)
_OPENED: Final = (
    update(Item).where(Item.id == bindparam("item")).values(status="open").execution_options(synchronize_session=False)
)


def held(session: Session, worker: LiveWorker, seconds: float) -> RoundTask | None:
    """The task of the round that a worker holds."""
    row = session.execute(_RUNNING, {"worker": worker.id}).one_or_none()
    return _task(row, row.id, row.lease, seconds, worker.slot) if row else None


def claim(session: Session, queue: TableQueue, worker: LiveWorker, seconds: float) -> RoundTask | None:
    """Begins the next round of a waiting problem; obsolete jobs before it are ended."""
    for _ in range(_MOST_OBSOLETE):
        job = queue.take(session, worker.queue, worker.engine_id)
        if job is None:
            return None
        item = session.execute(_WAITING, {"item": job.item_id}).one_or_none()
        lease = secrets.token_hex(16)
        if item and (round_id := _begin(session, item, job, worker, lease)):
            session.execute(_OPENED, {"item": job.item_id})
            return _task(item, round_id, lease, seconds, worker.slot)
        # Its campaign does not run, or its problem runs in another one.
        queue.release(session, job.id, again=False)
    return None


def _begin(session: Session, item: Row[Any], job: Job, worker: LiveWorker, lease: str) -> int | None:
    """The new round's id; None if another campaign runs the problem."""
    values = {
        "campaign_problem_id": item.item_id, "problem_id": item.problem_id, "queue": worker.queue, "status": "running",
        "priority": 2 * item.priority + item.started, "job_id": job.id, "lease": lease, "worker_id": worker.id,
        "announced_stage": "", "announced": [], "created_at": worker.at, "claimed_at": worker.at, "busy_seconds": 0.0,
        "measured": 0, "reason": "",
    }  # fmt: skip
    return session.scalar(_inserting(session.get_bind().dialect.name), values)


@cache
def _inserting(dialect: str) -> ReturningInsert[int]:
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(cast(Table, Round.__table__))
    begun: ReturningInsert[int] = insert.on_conflict_do_nothing().returning(Round.id)
    return begun


def _task(item: Row[Any], round_id: int, lease: str, seconds: float, slot: str) -> RoundTask:
    # Where nothing was correct the next study begins anew: it shall not screen as many as the last one has.
    begun = item.tried if item.tried > sum(item.failed.values()) else 0
    budget = from_document(CampaignBudget, item.budget).of_problem(begun if item.closing else None)
    return RoundTask(
        round_id, lease, item.key, budget.candidates, budget.turns, budget.target, seconds,
        () if item.closing else suspects_next(item.attempts, item.suspects), finalists_next(item.attempts), slot,
    )  # fmt: skip
