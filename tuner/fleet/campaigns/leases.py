"""Leases: which worker of which token holds a round, checked in the transaction that writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import JSON, Select, bindparam, select, update
from sqlalchemy.orm import Session, contains_eager, joinedload
from sqlalchemy.sql.dml import ReturningUpdate

from space.problem import Problem
from tuner.errors import LeaseLost, NewerContent, ResultRefused, UnknownRound
from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.models import ProblemRow, StudyRow
from tuner.evidence.records import StudyStatus
from tuner.fleet.campaigns.records import CampaignBudget
from workers.measurement import DeviceFacts, from_document


@dataclass(frozen=True, slots=True)
class LeasedRound:
    """A leased round, with everything needed to check its worker's calls.

    Attributes:
        problem_key: `Problem.key`.
        problem_id, device_id: ids of their rows.
        candidates, turns: most that are screened, and fewest turns of its finals, by the campaign's budget.
        source: of the study that the round continues; None before it has begun.
        finished: whether that study had come to its end before.
    """

    problem_key: str
    problem_id: int
    facts: DeviceFacts
    device_id: int
    worker_id: int
    study_id: int | None
    source: str | None
    candidates: int
    turns: int
    finished: bool

    @property
    def problem(self) -> Problem:
        """The round's problem; only read where it is needed: whoever can't read it may still report that.

        Raises:
            ResultRefused: this version can't read it, however often it is asked.
        """
        try:
            return codec.problem_of(self.problem_key)
        except NewerContent as error:
            raise ResultRefused(str(error)) from error


# Built once, because a large fleet runs them constantly and building one costs as much as running it.
_OURS: Final = (
    RoundRow.id == bindparam("round"), RoundRow.lease == bindparam("under"), RoundRow.status == "running",
)  # fmt: skip
_HELD: Final = (
    select(
        RoundRow.worker_id, RoundRow.study_id, RoundRow.problem_id, CampaignProblemRow.device_id, ProblemRow.key,
        WorkerRow.facts, StudyRow.source, StudyRow.status, CampaignRow.budget,
    )
    .join(ProblemRow, ProblemRow.id == RoundRow.problem_id)
    .join(CampaignProblemRow, CampaignProblemRow.id == RoundRow.campaign_problem_id)
    .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
    .join(WorkerRow, WorkerRow.id == RoundRow.worker_id)
    .outerjoin(StudyRow, StudyRow.id == RoundRow.study_id)
    .where(*_OURS, WorkerRow.token_id.is_not_distinct_from(bindparam("token")))
)  # fmt: skip
_LOCKED: Final = (
    select(RoundRow)
    .join(RoundRow.campaign_problem)
    .options(contains_eager(RoundRow.campaign_problem), joinedload(RoundRow.worker))
    .where(*_OURS)
    .with_for_update(of=(RoundRow, CampaignProblemRow))
)
_OURS_CHANGED: Final = update(RoundRow).where(*_OURS).execution_options(synchronize_session=False)
#: Which study the round continues.
BEGUN: Final = _OURS_CHANGED.values(study_id=bindparam("study")).returning(RoundRow.id)
#: Which candidates are measured next.
ANNOUNCED: Final = _OURS_CHANGED.values(
    announced_stage=bindparam("stage"), announced=bindparam("configs", type_=JSON)
).returning(RoundRow.id)


def held(session: Session, round_id: int, lease: str, token_id: int | None) -> LeasedRound:
    """The running round of a lease that a worker of this token holds.

    Raises:
        LeaseLost: it has ended, or has another lease.
        UnknownRound: no worker of this token ever held it.
    """
    row = session.execute(_HELD, {"round": round_id, "under": lease, "token": token_id}).one_or_none()
    if row is None or row.worker_id is None:
        if session.scalar(_rounds_of(token_id).where(RoundRow.id == round_id)) is None:
            raise UnknownRound(f"this token has no round {round_id}: claim one")
        raise lost(round_id)
    facts = from_document(DeviceFacts, row.facts)
    budget = from_document(CampaignBudget, row.budget).of_problem()
    finished = row.status == StudyStatus.FINISHED
    return LeasedRound(
        row.key, row.problem_id, facts, row.device_id, row.worker_id, row.study_id, row.source, budget.candidates,
        budget.turns, finished,
    )  # fmt: skip


def locked(session: Session, round_id: int, lease: str) -> RoundRow:
    """The rows of the round and its problem, locked until the transaction ends; the worker's row unlocked.

    Raises:
        LeaseLost: the caller no longer holds the round.
    """
    row = session.scalars(_LOCKED, {"round": round_id, "under": lease}).one_or_none()
    if row is None:
        raise lost(round_id)
    return row


def keep(session: Session, what: ReturningUpdate[int], round_id: int, lease: str, **values: object) -> None:
    """Records `BEGUN` or `ANNOUNCED`; locks the round's row until the transaction ends.

    Raises:
        LeaseLost: the caller no longer holds the round.
    """
    if session.scalar(what, {"round": round_id, "under": lease, **values}) is None:
        raise lost(round_id)


def repeated(session: Session, round_id: int, lease: str, token_id: int | None, digest: str) -> bool:
    """Whether exactly this report has ended the round, under this lease and token."""
    query = _rounds_of(token_id).where(RoundRow.id == round_id, RoundRow.lease == lease)
    return session.scalar(query.where(RoundRow.report_digest == digest)) is not None


def lost(round_id: int) -> LeaseLost:
    """The error for a call that comes too late."""
    return LeaseLost(f"round {round_id} is not yours any more: drop it and claim another")


def _rounds_of(token_id: int | None) -> Select[int]:
    """Ids of the rounds that workers of a token hold or held."""
    workers = WorkerRow.token_id.is_not_distinct_from(token_id)
    return select(RoundRow.id).join(WorkerRow, WorkerRow.id == RoundRow.worker_id).where(workers)
