"""Reconciler: makes queue, rounds and problems agree again after changes from outside.

Rounds and jobs change in one transaction, so they disagree only when jobs were deleted by hand or the tables come
from a backup. A queued round without a job is withdrawn, which puts its problem back into the backlog; a job of no
open round is ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from sqlalchemy import CursorResult, Update, select, update
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.backlog import OPEN
from tuner.fleet.campaigns.clock import now
from tuner.fleet.queue.port import Queue

#: The problem has an open round.
_HAS_OPEN: Final = (
    select(RoundRow.id)
    .where(RoundRow.campaign_problem_id == CampaignProblemRow.id, RoundRow.status.in_(OPEN))
    .exists()
)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A disagreement that `reconcile` would repair.

    Attributes:
        kind: as a phrase.
        number: id of the round, the job or the problem.
    """

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


def mismatches(store: Store, queue: Queue) -> set[Mismatch]:
    """Where queue, rounds and problems disagree now; changes nothing.

    Transactions under way may show up once: look twice.
    """
    item = CampaignProblemRow
    with store.transaction() as session:
        roundless = session.scalars(select(item.id).where(item.status == "open", ~_HAS_OPEN)).all()
        unopened = session.scalars(select(item.id).where(item.status == "waiting", _HAS_OPEN)).all()
        return {
            *(Mismatch("without a job: queued round", place) for place in queue.jobless(session)),
            *(Mismatch("for no round: job", job) for job in queue.strays(session)),
            *(Mismatch("open without a round: problem", place) for place in roundless),
            *(Mismatch("waiting with an open round: problem", place) for place in unopened),
        }  # fmt: skip


def reconcile(store: Store, queue: Queue) -> Counter[str]:
    """Repairs every disagreement; how many, by kind."""
    item, repaired = CampaignProblemRow, Counter[str]()
    with store.transaction(writes=True) as session:
        repaired["rounds without a job withdrawn"] = withdraw(session, queue.jobless(session), "its job is gone")
        strays = queue.strays(session)
        for job in strays:
            queue.end(session, job)
        repaired["jobs ended"] = len(strays)
    with store.transaction(writes=True) as session:
        # A problem is open exactly while it has an open round.
        back = update(item).where(item.status == "open", ~_HAS_OPEN).values(status="waiting")
        opened = update(item).where(item.status == "waiting", _HAS_OPEN).values(status="open")
        repaired["problems opened or put back"] = changed_rows(session, back) + changed_rows(session, opened)
    return +repaired


def withdraw(session: Session, rounds: Sequence[int], reason: str) -> int:
    """Ends queued rounds that no worker has claimed, and puts their problems back into the backlog; how many."""
    queued = update(RoundRow).where(RoundRow.id.in_(rounds), RoundRow.status == "queued")
    closed = queued.values(status="withdrawn", reason=reason, ended_at=now(session), job_id=None)
    items = session.scalars(closed.returning(RoundRow.campaign_problem_id)).all()
    item = CampaignProblemRow
    session.execute(update(item).where(item.id.in_(items), item.status == "open").values(status="waiting"))
    return len(items)


def changed_rows(session: Session, statement: Update) -> int:
    """Executes an update; how many rows it changed."""
    return cast("CursorResult[object]", session.execute(statement)).rowcount
