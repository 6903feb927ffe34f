"""Rounds: past and running work of workers, with the progress from their heartbeats."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.codec import utc
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import RoundProgress

RoundStatus = Literal["queued", "running", "done", "failed", "lost", "withdrawn"]
_Row = RoundRow
#: Rounds whose progress is in memory.
_MOST_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class ProgressFacts:
    """How far a running round had come at a moment; see `RoundProgress`."""

    stage: str
    tried: int
    best_us: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One round.

    Attributes:
        problem: key.
        announced: number of candidates that were announced last, of `announced_stage`.
        measured: measurements that it reported.
        progress: of a running round; None before its worker's first heartbeat.
    """

    id: int
    campaign_id: int
    campaign_problem_id: int
    problem: str
    worker_id: int | None
    study_id: int | None
    status: RoundStatus
    created_at: datetime
    claimed_at: datetime | None
    ended_at: datetime | None
    busy_seconds: float
    measured: int
    reason: str
    announced_stage: str
    announced: int
    progress: ProgressFacts | None


@dataclass(frozen=True, slots=True)
class RoundFilter:
    """Which rounds; None for any.

    Attributes:
        since: rounds that ended then or later, or still run.
    """

    worker: int | None = None
    campaign: int | None = None
    status: str | None = None
    since: datetime | None = None


class ProgressBoard:
    """The progress of running rounds, as this service's workers report it: telemetry, never stored."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, ProgressFacts] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, round_id: int, progress: RoundProgress) -> None:
        """Takes the progress in a heartbeat."""
        with self._lock:
            self._known.pop(round_id, None)
            self._known[round_id] = ProgressFacts(progress.stage, progress.tried, progress.best_us, datetime.now(UTC))
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)

    def get(self, round_id: int) -> ProgressFacts | None:
        """The last progress of a round."""
        return self._known.get(round_id)


def page(store: Store, board: ProgressBoard, wanted: RoundFilter, before: int, limit: int) -> list[RoundFacts]:
    """Rounds with an id below `before`, unless it is 0, newest first."""
    query = selected().order_by(_Row.id.desc()).limit(limit)
    if before:
        query = query.where(_Row.id < before)
    if wanted.worker is not None:
        query = query.where(_Row.worker_id == wanted.worker)
    if wanted.campaign is not None:
        query = query.where(CampaignProblemRow.campaign_id == wanted.campaign)
    if wanted.status is not None:
        query = query.where(_Row.status == wanted.status)
    if wanted.since is not None:
        query = query.where(or_(_Row.ended_at >= wanted.since, _Row.status == "running"))
    with store.transaction() as session:
        return facts(session, query, board)


def selected() -> Select[*tuple[Any, ...]]:
    """The columns that `facts` reads."""
    return (
        select(
            _Row.id, CampaignProblemRow.campaign_id, _Row.campaign_problem_id, ProblemRow.key, _Row.worker_id,
            _Row.study_id, _Row.status, _Row.created_at, _Row.claimed_at, _Row.ended_at, _Row.busy_seconds,
            _Row.measured, _Row.reason, _Row.announced_stage, _Row.announced,
        )
        .join(CampaignProblemRow, CampaignProblemRow.id == _Row.campaign_problem_id)
        .join(ProblemRow, ProblemRow.id == _Row.problem_id)
    )  # fmt: skip


def facts(
    session: Session, query: Select[*tuple[Any, ...]], board: ProgressBoard,
    parameters: Mapping[str, object] | None = None,
) -> list[RoundFacts]:  # fmt: skip
    """The rounds that a query of `selected` gives."""
    return [_facts(row, board) for row in session.connection().execute(query, parameters)]


def _facts(row: Sequence[Any], board: ProgressBoard) -> RoundFacts:
    number, *rest = row
    (campaign, item, key, worker, study, status, created, claimed, ended, busy, measured, reason, stage, told) = rest
    return RoundFacts(
        number, campaign, item, key, worker, study, status, utc(created), utc(claimed) if claimed else None,
        utc(ended) if ended else None, busy, measured, reason, stage, len(told),
        board.get(number) if status == "running" else None,
    )  # fmt: skip
