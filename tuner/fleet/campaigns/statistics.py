"""Fleet statistics: counts and rates for the metrics endpoint and the dashboard."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, literal, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, DeletedRounds, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now

#: Rates are averages over this time; a round lasts up to a minute.
WINDOW_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class FleetStatistics:
    """Counts at one moment.

    Attributes:
        rounds: all rounds ever, deleted ones too, by queue and status; `queued` are problems of running campaigns that
            wait for one.
        workers: by queue and status.
        campaigns, problems: by status.
        busy_seconds: total GPU time, by queue.
        measured: total candidates measured, by queue.
        recent_measured, recent_busy_seconds: of rounds that ended within the last `WINDOW_SECONDS`, by queue.
    """

    rounds: dict[tuple[str, str], int]
    workers: dict[tuple[str, str], int]
    campaigns: dict[str, int]
    problems: dict[str, int]
    busy_seconds: dict[str, float]
    measured: dict[str, int]
    recent_measured: dict[str, int]
    recent_busy_seconds: dict[str, float]

    def candidates_per_second(self, queue: str) -> float:
        """Candidates measured per second, averaged over the window."""
        return self.recent_measured.get(queue, 0) / WINDOW_SECONDS

    def busy_share(self, queue: str) -> float:
        """Share of its workers' time in the window that a queue spent measuring; at most 1."""
        present = sum(count for (name, status), count in self.workers.items() if name == queue and status != "gone")
        if not present:
            return 0.0
        return min(1.0, self.recent_busy_seconds.get(queue, 0.0) / (present * WINDOW_SECONDS))


def fleet_statistics(store: Store) -> FleetStatistics:
    """The counts now.

    Raises:
        StoreError: the store cannot be read.
    """
    with store.transaction() as session:
        ended, deleted = _totals(RoundRow, func.count()), _totals(DeletedRounds, func.sum(DeletedRounds.count))
        waiting = (
            select(CampaignProblemRow.queue, literal("queued"), func.count())
            .join(CampaignRow, CampaignRow.id == CampaignProblemRow.campaign_id)
            .where(CampaignRow.status == "running", CampaignProblemRow.status == "waiting")
            .group_by(CampaignProblemRow.queue)
        )
        present = select(WorkerRow.queue, WorkerRow.status, func.count()).group_by(WorkerRow.queue, WorkerRow.status)
        since = now(session) - timedelta(seconds=WINDOW_SECONDS)
        recent = (
            select(RoundRow.queue, func.sum(RoundRow.measured), func.sum(RoundRow.busy_seconds))
            .where(RoundRow.ended_at > since)
            .group_by(RoundRow.queue)
        )
        latest = session.execute(recent).all()
        rounds = Counter({(queue, status): count for queue, status, count in session.execute(waiting)})
        measured, busy = Counter[str](), defaultdict[str, float](float)
        for queue, status, count, candidates, seconds in session.execute(ended.union_all(deleted)):
            rounds[queue, status] += int(count)
            measured[queue] += int(candidates)
            busy[queue] += float(seconds)
        return FleetStatistics(
            rounds=dict(rounds),
            workers={(queue, status): count for queue, status, count in session.execute(present)},
            campaigns=_by_status(session, CampaignRow),
            problems=_by_status(session, CampaignProblemRow),
            busy_seconds=dict(busy),
            measured=dict(measured),
            recent_measured={queue: int(count) for queue, count, _ in latest},
            recent_busy_seconds={queue: float(seconds) for queue, _, seconds in latest},
        )


def _totals(rounds: type[RoundRow] | type[DeletedRounds], count: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    """Number, candidates and seconds of rounds by queue and status."""
    summed = count, func.sum(rounds.measured), func.sum(rounds.busy_seconds)
    return select(rounds.queue, rounds.status, *summed).group_by(rounds.queue, rounds.status)


def _by_status(session: Session, kind: type[CampaignRow] | type[CampaignProblemRow]) -> dict[str, int]:
    counts = session.execute(select(kind.status, func.count()).group_by(kind.status))
    return {status: count for status, count in counts}
