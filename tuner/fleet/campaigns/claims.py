"""Claims: selects a worker's next round and describes it to the worker.

A large fleet claims constantly, so a claim reads few columns, and its statements are built once.
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

#: Obsolete jobs that one claim clears away before it gives up.
_MOST_OBSOLETE: Final = 50
Item, Round = CampaignProblemRow, RoundRow


class ClaimableRound(NamedTuple):
    """A round and the fields of its task."""

    id: int
    lease: str | None
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
        """The task for the worker that holds the round."""
        budget = CampaignBudget(**self.budget).of_problem(self.tried if self.closing else None)
        return RoundTask(
            self.id, lease, self.problem_key, Policy(self.policy), budget.candidates, budget.turns, budget.target,
            seconds, suspects_next(self.attempts, self.suspects), finalists_next(self.attempts),
        )  # fmt: skip


_ROUNDS: Final = (
    select(
        Round.id, Round.lease, Item.id.label("item_id"), Item.attempts, Item.suspects, Item.closing, Item.tried,
        ProblemRow.key, CampaignRow.policy, CampaignRow.budget, CampaignRow.status,
    )
    .join(Item, Item.id == Round.campaign_problem_id)
    .join(CampaignRow, CampaignRow.id == Item.campaign_id)
    .join(ProblemRow, ProblemRow.id == Round.problem_id)
)  # fmt: skip
_RUNNING: Final = _ROUNDS.where(Round.worker_id == bindparam("worker"), Round.status == "running")
_OF_JOB: Final = _ROUNDS.where(Round.job_id == bindparam("job"), Round.status == "queued").with_for_update(of=Round)
_ONE: Final = update(Round).where(Round.id == bindparam("round")).execution_options(synchronize_session=False)
_GRANT: Final = _ONE.values(
    status="running", worker_id=bindparam("worker"), lease=bindparam("given"),
    claimed_at=bindparam("at", type_=DateTime(timezone=True)),
)  # fmt: skip


def running(session: Session, worker_id: int) -> ClaimableRound | None:
    """The round that a worker holds."""
    row = session.execute(_RUNNING, {"worker": worker_id}).one_or_none()
    return ClaimableRound._make(row) if row else None


def take(session: Session, queue: Queue, worker: LiveWorker) -> ClaimableRound | None:
    """The next queued round of a running campaign, locked; obsolete jobs before it are ended."""
    for _ in range(_MOST_OBSOLETE):
        job = queue.take(session, worker.queue, worker.engine_id)
        if job is None:
            return None
        row = session.execute(_OF_JOB, {"job": job}).one_or_none()
        found = ClaimableRound._make(row) if row else None
        if found and found.campaign_status == "running":
            return found
        queue.end(session, job)
        if found:
            _withdraw(session, found)
    return None


def grant(session: Session, found: ClaimableRound, worker_id: int, lease: str, at: datetime) -> None:
    """Gives a worker the lease of a round that was taken for it."""
    session.execute(_GRANT, {"round": found.id, "worker": worker_id, "given": lease, "at": at})


def _withdraw(session: Session, found: ClaimableRound) -> None:
    reason = f"the campaign is {found.campaign_status}"
    session.execute(_ONE.values(status="withdrawn", reason=reason, job_id=None), {"round": found.id})
    session.execute(update(Item).where(Item.id == found.item_id).values(status="waiting"))
