"""Fleet statistics: counts and rates for the metrics endpoint and the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import func, literal, select
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now

#: Rates are averages over this time; a round lasts up to a minute.
WINDOW_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class FleetStatistics:
    """Counts at one moment.

    Attributes:
        rounds: all rounds ever, by queue and status; `queued` are problems of running campaigns that wait for one.
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
        pair = select(RoundRow.queue, RoundRow.status, func.count()).group_by(RoundRow.queue, RoundRow.status)
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
        ended = session.execute(recent).all()
        busy = select(WorkerRow.queue, func.sum(WorkerRow.busy_seconds)).group_by(WorkerRow.queue)
        measured = select(RoundRow.queue, func.sum(RoundRow.measured)).group_by(RoundRow.queue)
        return FleetStatistics(
            rounds={(queue, status): count for queue, status, count in session.execute(pair.union_all(waiting))},
            workers={(queue, status): count for queue, status, count in session.execute(present)},
            campaigns=_by_status(session, CampaignRow),
            problems=_by_status(session, CampaignProblemRow),
            busy_seconds={queue: float(seconds) for queue, seconds in session.execute(busy)},
            measured={queue: int(count) for queue, count in session.execute(measured)},
            recent_measured={queue: int(count) for queue, count, _ in ended},
            recent_busy_seconds={queue: float(seconds) for queue, _, seconds in ended},
        )


def _by_status(session: Session, kind: type[CampaignRow] | type[CampaignProblemRow]) -> dict[str, int]:
    counts = session.execute(select(kind.status, func.count()).group_by(kind.status))
    return {status: count for status, count in counts}
