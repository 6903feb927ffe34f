"""Sweep: repeatedly brings the tables to the state they should have, whatever state they are in.

Claims and reports change only what concerns their own round. What follows from time, silence, budgets or a
campaign's status happens here, within about a second. Each step is a short transaction that checks again under its
locks, so any number of services may sweep at once, and any of them may die midway.

Locks are taken in the order worker, engine's worker, waiting job, round, problem, taken job, campaign.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Select, String, bindparam, func, select, update
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.backlog import fill_window, requeue
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.outcomes import record_failure
from tuner.fleet.campaigns.reconcile import changed_rows, reconcile, withdraw
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.reports import account
from tuner.fleet.campaigns.workers import sign_off
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.port import Queue

#: Between two comparisons of the queue with the rounds.
RECONCILE_EVERY_SECONDS: Final = 15.0
#: Most rounds of one transaction.
_MANY: Final = 200
Item, Round = CampaignProblemRow, RoundRow


@dataclass(slots=True)
class Swept:
    """What a sweep changed, by kind; empty when nothing needed changing."""

    changed: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.changed.total() > 0


class Sweeper:
    """Sweeps one store. A worker's silence counts only while a service was up to hear it."""

    def __init__(
        self, store: Store, timing: Timing = TIMING, queue: Queue | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self._timing, self._clock = store, timing, clock
        self._queue = queue or queue_of(store)
        self._listening_since = self._last_sweep = clock()
        self._last_reconciled = -math.inf

    @property
    def pause_seconds(self) -> float:
        """Between two sweeps."""
        return min(1.0, self._timing.heartbeat_seconds / 2)

    def sweep(self) -> Swept:
        """One pass over everything.

        Raises:
            StoreError: the database cannot be used; silence is counted anew from the next pass on.
        """
        swept, at = Swept(), self._clock()
        if at - self._last_sweep > self._timing.silence_seconds:
            # This process slept, and perhaps no service heard the workers meanwhile.
            self._listening_since = at
        try:
            if at - self._listening_since >= self._timing.silence_seconds:
                swept.changed["workers lost"] += self._lose_workers()
            if at - self._last_reconciled >= RECONCILE_EVERY_SECONDS:
                swept.changed += reconcile(self._store, self._queue)
                self._last_reconciled = at
            swept.changed["rounds withdrawn"] += self._withdraw_rounds()
            swept.changed["problems skipped"] += self._skip_problems()
            swept.changed["budgets spent"] += self._spend_budgets()
            swept.changed["rounds queued"] += self._feed_all()
            swept.changed["campaigns finished"] += self._finish_campaigns()
        except StoreError:
            self._listening_since = self._clock()
            raise
        finally:
            self._last_sweep = self._clock()
        return swept

    # -------------------------------------------------------------------------------------------- steps

    def _lose_workers(self) -> int:
        """Declares workers gone that the queue has forgotten, and takes their rounds."""
        with self._store.transaction(writes=True) as session:
            self._queue.prune(session, self._timing.silence_seconds)
        with self._store.transaction() as session:
            lost = select(WorkerRow.id).where(WorkerRow.status != "gone", ~self._queue.registered)
            found = session.scalars(lost.order_by(WorkerRow.id)).all()
        return sum(self._lose_worker(worker_id) for worker_id in found)

    def _lose_worker(self, worker_id: int) -> int:
        with self._store.transaction(writes=True) as session:
            still = select(WorkerRow).where(WorkerRow.id == worker_id, WorkerRow.status != "gone")
            worker = session.scalars(still.with_for_update()).one_or_none()
            if worker is None:
                return 0
            held = select(Round).where(Round.worker_id == worker_id, Round.status == "running").with_for_update()
            round_ = session.scalars(held).one_or_none()
            if round_ is not None:
                self._lose_round(session, round_, f"worker {worker.name} was silent for {self._silence}")
            sign_off(session, self._queue, worker, f"silent for {self._silence}")
            return 1

    @property
    def _silence(self) -> str:
        return f"{self._timing.silence_seconds:g} s"

    def _lose_round(self, session: Session, round_: RoundRow, reason: str) -> None:
        moment = now(session)
        item = session.get_one(Item, round_.campaign_problem_id, with_for_update=True)
        account(session, round_, item, 0.0, 0, moment)
        round_.status, round_.reason, item.started = "lost", reason, True
        record_failure(round_, item, reason, (), self._timing.attempts, moment)
        job, round_.job_id = round_.job_id, None
        session.flush()
        if job is not None:
            requeue(session, self._queue, item, job, moment)

    def _withdraw_rounds(self) -> int:
        """Withdraws queued rounds whose campaign does not run."""
        query = (
            select(Round.job_id)
            .join(Item, Item.id == Round.campaign_problem_id)
            .join(CampaignRow, CampaignRow.id == Item.campaign_id)
            .where(Round.status == "queued", CampaignRow.status != "running")
        )
        withdrawn = 0
        while True:
            with self._store.transaction(writes=True) as session:
                done = self._withdraw(session, query.order_by(Round.id).limit(_MANY), "its campaign does not run")
            withdrawn += done
            if done < _MANY:
                return withdrawn

    def _withdraw(self, session: Session, jobs: Select[int | None], reason: str) -> int:
        """Withdraws queued rounds, given by their jobs, unless a worker takes one first."""
        waiting = self._queue.withdraw(session, [job for job in session.scalars(jobs) if job is not None])
        rounds = session.scalars(select(Round.id).where(Round.job_id.in_(waiting))).all()
        return withdraw(session, rounds, reason)

    def _skip_problems(self) -> int:
        """Ends the waiting problems of cancelled campaigns."""
        over = select(CampaignRow.id).where(CampaignRow.status == "cancelled")
        with self._store.transaction(writes=True) as session:
            waiting = update(Item).where(Item.campaign_id.in_(over), Item.status == "waiting")
            skipped = waiting.values(status="skipped", reason="the campaign was cancelled", ended_at=now(session))
            return changed_rows(session, skipped)

    def _spend_budgets(self) -> int:
        """When a campaign's GPU time is spent, started problems get their finals, and the others are skipped."""
        with self._store.transaction() as session:
            running = session.scalars(select(CampaignRow).where(CampaignRow.status == "running")).all()
            limited = {row.id: row.budget["gpu_seconds"] for row in running if row.budget.get("gpu_seconds")}
            spent = select(Item.campaign_id, func.sum(Item.gpu_seconds)).where(Item.campaign_id.in_(limited))
            over = [
                place for place, used in session.execute(spent.group_by(Item.campaign_id)) if used >= limited[place]
            ]
        return sum(self._close_campaign(campaign_id) for campaign_id in over)

    def _close_campaign(self, campaign_id: int) -> int:
        reason = "the campaign's GPU time is spent"
        fresh = select(Round.job_id).join(Item, Item.id == Round.campaign_problem_id)
        fresh = fresh.where(Item.campaign_id == campaign_id, Round.status == "queued", ~Item.started)
        with self._store.transaction(writes=True) as session:
            self._withdraw(session, fresh.order_by(Round.id), reason)
            waiting = update(Item).where(Item.campaign_id == campaign_id, Item.status == "waiting")
            skipped = waiting.where(~Item.started).values(status="skipped", reason=reason, ended_at=now(session))
            closing = update(Item).where(Item.campaign_id == campaign_id, Item.started, ~Item.closing)
            open_ = closing.where(Item.status.in_(("waiting", "open"))).values(closing=True)
            return changed_rows(session, skipped) + changed_rows(session, open_)

    def _feed_all(self) -> int:
        """Queues rounds wherever problems wait."""
        with self._store.transaction() as session:
            queues = _waiting_queues(session)
        fed = 0
        for name in queues:
            with self._store.transaction(writes=True) as session:
                fed += fill_window(session, self._queue, name, self._timing.window)
        return fed

    def _finish_campaigns(self) -> int:
        """Finishes campaigns whose problems have all ended."""
        left = select(Item.id).where(Item.campaign_id == CampaignRow.id, Item.status.in_(("waiting", "open"))).exists()
        with self._store.transaction() as session:
            done = session.scalars(select(CampaignRow.id).where(CampaignRow.status == "running", ~left)).all()
        for campaign_id in done:
            with self._store.transaction(writes=True) as session:
                skipped = select(Item.reason).where(Item.campaign_id == campaign_id, Item.status == "skipped").limit(1)
                because = session.scalar(skipped) or "every problem has ended"
                ends = update(CampaignRow).where(CampaignRow.id == campaign_id, CampaignRow.status == "running", ~left)
                changed_rows(session, ends.values(status="finished", stopped_because=because, finished_at=now(session)))
        return len(done)


def _waiting_queues(session: Session) -> list[str]:
    """Queues for which problems of running campaigns wait, in order.

    One statement per queue, with one index lookup per campaign: a hundred thousand problems may wait.
    """
    of_one = select(func.min(Item.queue)).where(
        Item.campaign_id == CampaignRow.id, Item.status == "waiting", Item.queue > bindparam("after", type_=String)
    )
    first = select(func.min(of_one.scalar_subquery())).where(CampaignRow.status == "running")
    found: list[str] = []
    while (name := session.scalar(first, {"after": found[-1] if found else ""})) is not None:
        found.append(name)
    return found
