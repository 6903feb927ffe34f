"""Leases: who holds a round, checked in the transaction that writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import JSON, bindparam, select, update
from sqlalchemy.orm import Session, contains_eager, joinedload
from sqlalchemy.sql.dml import ReturningUpdate

from space.problem import Problem
from tuner.errors import LeaseLost
from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.models import ProblemRow, StudyRow
from workers.measurement import DeviceFacts, Policy, Stage


@dataclass(frozen=True, slots=True)
class LeasedRound:
    """A round as its holder sees it, with everything that checks of its words need.

    Attributes:
        problem_id, device_id: their rows.
        source: of the study that it was begun with; None before.
    """

    problem: Problem
    problem_id: int
    policy: Policy
    facts: DeviceFacts
    device_id: int
    worker_id: int
    study_id: int | None
    source: str | None


# Statements of calls that a large fleet makes all the time are made once: to make one costs as much as to run it.
_OURS: Final = (
    RoundRow.id == bindparam("round"), RoundRow.lease == bindparam("under"), RoundRow.status == "running",
)  # fmt: skip
_HELD: Final = (
    select(
        RoundRow.worker_id, RoundRow.study_id, RoundRow.problem_id, CampaignProblemRow.device_id, ProblemRow.key,
        CampaignRow.policy, WorkerRow.facts, StudyRow.source,
    )
    .join(ProblemRow, ProblemRow.id == RoundRow.problem_id)
    .join(CampaignProblemRow, CampaignProblemRow.id == RoundRow.campaign_problem_id)
    .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    .join(WorkerRow, WorkerRow.id == RoundRow.worker_id)
    .outerjoin(StudyRow, StudyRow.id == RoundRow.study_id)
    .where(*_OURS)
)  # fmt: skip
_LOCKED: Final = (
    select(RoundRow)
    .join(RoundRow.campaign_problem)
    .options(contains_eager(RoundRow.campaign_problem), joinedload(RoundRow.worker))
    .where(*_OURS)
    .with_for_update(of=(RoundRow, CampaignProblemRow))
)
_OURS_CHANGED: Final = update(RoundRow).where(*_OURS).execution_options(synchronize_session=False)
_BEGIN: Final = _OURS_CHANGED.values(study_id=bindparam("study")).returning(RoundRow.id)
_ANNOUNCE: Final = _OURS_CHANGED.values(
    announced_stage=bindparam("stage"), announced=bindparam("configs", type_=JSON)
).returning(RoundRow.id)


def held(session: Session, round_id: int, lease: str) -> LeasedRound:
    """The round that a lease is for.

    Raises:
        LeaseLost: it has ended, or the lease is of no round.
    """
    row = session.execute(_HELD, {"round": round_id, "under": lease}).one_or_none()
    if row is None or row.worker_id is None:
        raise lost(round_id)
    problem, policy = codec.problem_of(row.key), Policy(row.policy)
    facts = DeviceFacts(**row.facts)
    return LeasedRound(problem, row.problem_id, policy, facts, row.device_id, row.worker_id, row.study_id, row.source)


def locked(session: Session, round_id: int, lease: str) -> RoundRow:
    """The round's row and its problem's, ours until the transaction ends; the worker's is read with them.

    Raises:
        LeaseLost: it is not the caller's any more.
    """
    row = session.scalars(_LOCKED, {"round": round_id, "under": lease}).one_or_none()
    if row is None:
        raise lost(round_id)
    return row


def keep_study(session: Session, round_id: int, lease: str, study_id: int) -> None:
    """Notes which study a round goes on with; the round's row is ours until the transaction ends.

    Raises:
        LeaseLost: it is not the caller's any more.
    """
    _keep(session, _BEGIN, {"round": round_id, "under": lease, "study": study_id})


def keep_announced(session: Session, round_id: int, lease: str, stage: Stage, configs: Sequence[str]) -> None:
    """Notes which candidates are measured next; the round's row is ours until the transaction ends.

    Raises:
        LeaseLost: it is not the caller's any more.
    """
    _keep(session, _ANNOUNCE, {"round": round_id, "under": lease, "stage": stage, "configs": list(configs)})


def _keep(session: Session, what: ReturningUpdate[int], said: Mapping[str, Any]) -> None:
    if session.scalar(what, said) is None:
        raise lost(said["round"])


def reported(session: Session, round_id: int, lease: str) -> bool:
    """Whether the round was reported under this very lease already."""
    query = select(RoundRow.id).where(RoundRow.id == round_id, RoundRow.lease == lease)
    return session.scalar(query.where(RoundRow.status.in_(("done", "failed")))) is not None


def lost(round_id: int) -> LeaseLost:
    """One sentence for whoever comes too late."""
    return LeaseLost(f"round {round_id} is not yours any more: drop it and claim another")
