"""Leases: who holds a round, checked in the transaction that writes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, joinedload

from space.problem import Problem
from tuner.errors import LeaseLost
from tuner.store.campaign_models import CampaignProblemRow, RoundRow
from tuner.store.models import StudyRow
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


def held(session: Session, round_id: int, lease: str) -> Held:
    """The round that a lease is for.

    Raises:
        LeaseLost: it has ended, or the lease is of no round.
    """
    query = whole().where(RoundRow.id == round_id, RoundRow.lease == lease, RoundRow.status == "running")
    row = session.scalars(query.options(joinedload(RoundRow.worker))).one_or_none()
    if row is None or row.worker is None:
        raise lost(round_id)
    study = session.get(StudyRow, row.study_id) if row.study_id is not None else None
    problem, policy = Problem.from_key(row.problem.key), Policy(row.campaign_problem.campaign.policy)
    return Held(
        problem, policy, DeviceFacts(**row.worker.facts), row.worker.id, row.study_id, study.source if study else None,
    )  # fmt: skip


def locked(session: Session, round_id: int, lease: str) -> RoundRow:
    """The round's row, ours until the transaction ends.

    Raises:
        LeaseLost: it is not the caller's any more.
    """
    query = select(RoundRow).where(RoundRow.id == round_id, RoundRow.lease == lease, RoundRow.status == "running")
    row = session.scalars(query.with_for_update()).one_or_none()
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
