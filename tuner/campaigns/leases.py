"""Leases: who holds a round, checked in the transaction that writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session, contains_eager, joinedload

from space.problem import Problem
from tuner.errors import LeaseLost
from tuner.store.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.store.models import ProblemRow, StudyRow
from workers.measurement import DeviceFacts, Policy


@dataclass(frozen=True, slots=True)
class Held:
    """A round as its holder sees it, with everything that checks of its words need.

    Attributes:
        source: of the study that it was begun with; None before.
    """

    problem: Problem
    policy: Policy
    facts: DeviceFacts
    worker_id: int
    study_id: int | None
    source: str | None


def whole() -> Select[RoundRow]:
    """Rounds with their problem and campaign."""
    item = joinedload(RoundRow.campaign_problem, innerjoin=True)
    return select(RoundRow).options(
        item.joinedload(CampaignProblemRow.campaign, innerjoin=True), joinedload(RoundRow.problem, innerjoin=True)
    )


# Statements of calls that a large fleet makes all the time are made once: to make one costs as much as to run it.
_OURS: Final = (
    RoundRow.id == bindparam("round"), RoundRow.lease == bindparam("lease"), RoundRow.status == "running",
)  # fmt: skip
_HELD: Final = (
    select(RoundRow.worker_id, RoundRow.study_id, ProblemRow.key, CampaignRow.policy, WorkerRow.facts, StudyRow.source)
    .join(ProblemRow, ProblemRow.id == RoundRow.problem_id)
    .join(CampaignProblemRow, CampaignProblemRow.id == RoundRow.campaign_problem_id)
    .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    .join(WorkerRow, WorkerRow.id == RoundRow.worker_id)
    .outerjoin(StudyRow, StudyRow.id == RoundRow.study_id)
    .where(*_OURS)
)
_LOCKED: Final = (
    select(RoundRow)
    .join(RoundRow.campaign_problem)
    .options(contains_eager(RoundRow.campaign_problem), joinedload(RoundRow.worker))
    .where(*_OURS)
    .with_for_update(of=(RoundRow, CampaignProblemRow))
)


def held(session: Session, round_id: int, lease: str) -> Held:
    """The round that a lease is for.

    Raises:
        LeaseLost: it has ended, or the lease is of no round.
    """
    row = session.execute(_HELD, {"round": round_id, "lease": lease}).one_or_none()
    if row is None or row.worker_id is None:
        raise lost(round_id)
    problem, policy = Problem.from_key(row.key), Policy(row.policy)
    return Held(problem, policy, DeviceFacts(**row.facts), row.worker_id, row.study_id, row.source)


def locked(session: Session, round_id: int, lease: str) -> RoundRow:
    """The round's row and its problem's, ours until the transaction ends; the worker's is read with them.

    Raises:
        LeaseLost: it is not the caller's any more.
    """
    row = session.scalars(_LOCKED, {"round": round_id, "lease": lease}).one_or_none()
    if row is None:
        raise lost(round_id)
    return row


def reported(session: Session, round_id: int, lease: str) -> bool:
    """Whether the round was reported under this very lease already."""
    query = select(RoundRow.id).where(RoundRow.id == round_id, RoundRow.lease == lease)
    return session.scalar(query.where(RoundRow.status.in_(("done", "failed")))) is not None


def lost(round_id: int) -> LeaseLost:
    """One sentence for whoever comes too late."""
    return LeaseLost(f"round {round_id} is not yours any more: drop it and claim another")
