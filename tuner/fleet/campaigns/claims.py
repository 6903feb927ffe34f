"""Claims: which round a worker gets next, and what it is told of it.

A large fleet claims all the time, so a claim reads the few columns that it needs, each statement is made once, and
every one of them is a way to the database that a claim waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import DateTime, bindparam, select, update
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow
from tuner.evidence.models import ProblemRow
from tuner.fleet.campaigns.outcomes import finalists_next, suspects_next
from tuner.fleet.campaigns.records import CampaignBudget, Policy, RoundTask
from tuner.fleet.campaigns.workers import LiveWorker
from tuner.fleet.queue.port import Queue

#: Jobs that stand for nothing any more that one claim clears away before it gives up until the next.
_MOST_STALE: Final = 50
Item, Round = CampaignProblemRow, RoundRow


class Found(NamedTuple):
    """A round with what its task says, read in one statement."""

    id: int
    lease: str | None
    status: str
    job_id: int | None
    item_id: int
    attempts: int
    suspects: Sequence[str]
    closing: bool
    tried: int
    problem_key: str
    policy: str
    budget: dict[str, Any]
    campaign_status: str

    def task(self, lease: str, seconds: float) -> RoundTask:
        """What its holder is told."""
        budget = CampaignBudget(**self.budget).of_problem(self.tried if self.closing else None)
        return RoundTask(
            self.id, lease, self.problem_key, Policy(self.policy), budget.candidates, budget.rounds, budget.target,
            seconds, suspects_next(self.attempts, self.suspects), finalists_next(self.attempts),
        )  # fmt: skip


_ROUNDS: Final = (
    select(
        Round.id, Round.lease, Round.status, Round.job_id, Item.id.label("item_id"), Item.attempts, Item.suspects,
        Item.closing, Item.tried, ProblemRow.key, CampaignRow.policy, CampaignRow.budget, CampaignRow.status,
    )
    .join(Item, Item.id == Round.campaign_problem_id)
    .join(CampaignRow, CampaignRow.id == Item.campaign_id)
    .join(ProblemRow, ProblemRow.id == Round.problem_id)
)  # fmt: skip
_RUNNING: Final = _ROUNDS.where(Round.worker_id == bindparam("worker"), Round.status == "running")
_OF_JOB: Final = _ROUNDS.where(Round.id == bindparam("round")).with_for_update(of=Round)
_ONE: Final = update(Round).where(Round.id == bindparam("round")).execution_options(synchronize_session=False)
_GIVE: Final = _ONE.values(
    status="running", worker_id=bindparam("worker"), lease=bindparam("given"),
    claimed_at=bindparam("at", type_=DateTime(timezone=True)),
)  # fmt: skip


def running(session: Session, worker_id: int) -> Found | None:
    """The round that a worker holds."""
    row = session.execute(_RUNNING, {"worker": worker_id}).one_or_none()
    return Found._make(row) if row else None


def take(session: Session, queue: Queue, worker: LiveWorker) -> Found | None:
    """A queued round of a running campaign, locked; what is queued for nothing is cleared away."""
    for _ in range(_MOST_STALE):
        job = queue.take(session, worker.queue, worker.engine_id)
        if job is None:
            return None
        row = session.execute(_OF_JOB, {"round": job.round_id}).one_or_none()
        found = Found._make(row) if row else None
        if found is None or found.status != "queued" or found.job_id != job.id:
            queue.end(session, job.id)
        elif found.campaign_status != "running":
            queue.end(session, job.id)
            _withdraw(session, found)
        else:
            return found
    return None


def give(session: Session, found: Found, worker_id: int, lease: str, at: datetime) -> None:
    """Makes a round that was taken the worker's."""
    session.execute(_GIVE, {"round": found.id, "worker": worker_id, "given": lease, "at": at})


def _withdraw(session: Session, found: Found) -> None:
    reason = f"the campaign is {found.campaign_status}"
    session.execute(_ONE.values(status="withdrawn", reason=reason, job_id=None), {"round": found.id})
    session.execute(update(Item).where(Item.id == found.item_id).values(status="waiting"))
