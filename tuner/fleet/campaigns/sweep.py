"""Sweep: makes the tables what they should be, again and again, from whatever state they are in.

Claims and reports only ever do what concerns their own round; whatever follows from time, silence, budgets or a
campaign's status is done here, within about a second. Each step is a short transaction of its own that looks
again under its locks, so that any number of services may sweep at once, and any of them may die in the middle.

Locks are always taken in the order worker, waiting job, round, taken job, problem, campaign.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from sqlalchemy import String, bindparam, func, select, update
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.backlog import fill_window
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.outcomes import end_badly
from tuner.fleet.campaigns.reconcile import changed_rows, reconcile
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.reports import account
from tuner.fleet.campaigns.workers import part
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.port import Queue

#: Between two comparisons of the whole queue with the rounds.
RECONCILE_EVERY_SECONDS: Final = 15.0
#: Rounds that one step handles in a transaction.
_MANY: Final = 200
Item, Round = CampaignProblemRow, RoundRow


@dataclass(slots=True)
class Swept:
    """What a sweep changed, by kind; empty when everything was as it should be."""

    changed: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.changed.total() > 0


class Sweeper:
    """Sweeps one store. A worker's silence counts only while somebody was there to hear it."""

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
            StoreError: the database can't be used; silence is counted anew from the next pass on.
        """
        swept, at = Swept(), self._clock()
        reconciling = at - self._last_reconciled >= RECONCILE_EVERY_SECONDS
        if at - self._last_sweep > self._timing.silence_seconds:
            # This process slept, and nobody may have heard the workers meanwhile.
            self._listening_since = at
        try:
            if at - self._listening_since >= self._timing.silence_seconds:
                swept.changed["workers lost"] += self._lose_workers()
            swept.changed["rounds withdrawn"] += self._withdraw_rounds()
            swept.changed["problems skipped"] += self._skip_problems()
            swept.changed["budgets spent"] += self._spend_budgets()
            swept.changed["rounds queued"] += self._feed_all()
            swept.changed["campaigns finished"] += self._finish_campaigns()
            if reconciling:
                swept.changed += reconcile(self._store, self._queue)
                self._last_reconciled = at
        except StoreError:
            self._listening_since = self._clock()
            raise
        finally:
            self._last_sweep = self._clock()
        return swept

    # -------------------------------------------------------------------------------------------- steps

    def _lose_workers(self) -> int:
        """Takes the rounds of workers that were silent for too long."""
        with self._store.transaction() as session:
            since = now(session) - timedelta(seconds=self._timing.silence_seconds)
            silent = select(WorkerRow.id).where(WorkerRow.status != "gone", WorkerRow.beat_at < since)
            found = session.scalars(silent.order_by(WorkerRow.id)).all()
        return sum(self._lose_worker(worker_id) for worker_id in found)

    def _lose_worker(self, worker_id: int) -> int:
        with self._store.transaction(writes=True) as session:
            moment = now(session)
            since = moment - timedelta(seconds=self._timing.silence_seconds)
            still = select(WorkerRow).where(
                WorkerRow.id == worker_id, WorkerRow.status != "gone", WorkerRow.beat_at < since
            )
            worker = session.scalars(still.with_for_update()).one_or_none()
            if worker is None:
                return 0
            held = select(Round).where(Round.worker_id == worker_id, Round.status == "running").with_for_update()
            round_ = session.scalars(held).one_or_none()
            if round_ is not None:
                reason = f"worker {worker.name} was not heard for {self._timing.silence_seconds:g} s"
                self._lose_round(session, round_, reason)
            part(session, self._queue, worker, f"silent for {self._timing.silence_seconds:g} s")
            if round_ is not None:
                session.flush()
                fill_window(session, self._queue, round_.queue, self._timing.window)
            return 1

    def _lose_round(self, session: Session, round_: RoundRow, reason: str) -> None:
        moment = now(session)
        if round_.job_id is not None:
            self._queue.end(session, round_.job_id)
            round_.job_id = None
        item = session.get_one(Item, round_.campaign_problem_id, with_for_update=True)
        account(session, round_, item, 0.0, 0, moment)
        round_.status, round_.reason, item.started = "lost", reason, True
        end_badly(round_, item, reason, (), self._timing.attempts, moment)

    def _withdraw_rounds(self) -> int:
        """Takes queued rounds out of the queue whose campaign does not run."""
        query = (
            select(Round.id, Round.job_id)
            .join(Item, Item.id == Round.campaign_problem_id)
            .join(CampaignRow, CampaignRow.id == Item.campaign_id)
            .where(Round.status == "queued", CampaignRow.status != "running")
        )
        withdrawn = 0
        while True:
            with self._store.transaction(writes=True) as session:
                found = session.execute(query.order_by(Round.id).limit(_MANY)).all()
                done = [place for place, job in found if job is None or self._queue.withdraw(session, job)]
                self._close_queued(session, done)
            withdrawn += len(done)
            if len(done) < _MANY:
                return withdrawn

    def _close_queued(self, session: Session, rounds: list[int]) -> None:
        queued = update(Round).where(Round.id.in_(rounds), Round.status == "queued")
        closed = queued.values(
            status="withdrawn", reason="its campaign does not run", ended_at=now(session), job_id=None
        )
        items = session.scalars(closed.returning(Round.campaign_problem_id)).all()
        session.execute(update(Item).where(Item.id.in_(items), Item.status == "open").values(status="waiting"))

    def _skip_problems(self) -> int:
        """Ends the waiting problems of cancelled campaigns."""
        over = select(CampaignRow.id).where(CampaignRow.status == "cancelled")
        with self._store.transaction(writes=True) as session:
            waiting = update(Item).where(Item.campaign_id.in_(over), Item.status == "waiting")
            skipped = waiting.values(status="skipped", reason="the campaign was cancelled", ended_at=now(session))
            return changed_rows(session, skipped)

    def _spend_budgets(self) -> int:
        """Where the GPU time is spent, what was begun gets its finals, and the rest is skipped."""
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
        fresh = select(Round.id, Round.job_id).join(Item, Item.id == Round.campaign_problem_id)
        fresh = fresh.where(Item.campaign_id == campaign_id, Round.status == "queued", ~Item.started)
        with self._store.transaction(writes=True) as session:
            queued = session.execute(fresh.order_by(Round.id)).all()
            self._close_queued(session, [r for r, job in queued if job is None or self._queue.withdraw(session, job)])
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
        """Ends campaigns all of whose problems have ended."""
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

    One statement a queue, each of which looks into an index once a campaign: all that wait may be a hundred thousand.
    """
    of_one = select(func.min(Item.queue)).where(
        Item.campaign_id == CampaignRow.id, Item.status == "waiting", Item.queue > bindparam("after", type_=String)
    )
    first = select(func.min(of_one.scalar_subquery())).where(CampaignRow.status == "running")
    found: list[str] = []
    while (name := session.scalar(first, {"after": found[-1] if found else ""})) is not None:
        found.append(name)
    return found
