"""Sweep: repeatedly brings the tables into the right state, whatever state they are in.

Claims and reports change only what concerns their own round. The consequences of time, silence, budgets and a
campaign's status are drawn here, within about a second. Each step is a short transaction that checks again under its
locks, so any number of services may sweep at once, and any of them may die midway.

Locks are taken in the order worker, engine's worker, waiting job, running round, problem, taken job.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Self, cast

from sqlalchemy import ColumnElement, CursorResult, func, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import SQLCoreOperations

from tuner.errors import StoreError
from tuner.evidence import revocations
from tuner.evidence.campaign_models import CampaignProblemRow, CampaignRow, RoundRow, WorkerRow
from tuner.evidence.codec import utc
from tuner.evidence.store import Store
from tuner.fleet.campaigns.clock import now, sql_now
from tuner.fleet.campaigns.outcomes import SPENT, record_failure
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.reports import account
from tuner.fleet.campaigns.retention import AT_ONCE, delete_old
from tuner.fleet.campaigns.workers import sign_off
from tuner.fleet.queue.choice import queue_of
from tuner.repeats import Repeats

_log = logging.getLogger("gemmtune.maintenance")
#: Between two comparisons of the queue with the problems.
RECONCILE_EVERY_SECONDS: Final = 15.0
#: Between two steps of a sweep: each takes a millisecond or two of a core that may answer requests, too.
_REST_SECONDS: Final = 0.005
#: Between two deletions of old rows, once there are few left.
DELETE_EVERY_SECONDS: Final = 60.0
#: How long the last step may take.
_END_SECONDS: Final = 5.0
#: Rows that one transaction of a step changes: 300,000 in one statement take longer than a statement may.
CHANGED_AT_ONCE: Final = 5_000
#: A name for the rows that a step changes, and the step, which counts them; by kind if there are several.
Step = tuple[str, Callable[[], int | Counter[str]]]
Item, Round = CampaignProblemRow, RoundRow
#: Problems that were left open without a running round, as after changes by hand.
ROUNDLESS: Final = (
    Item.status == "open",
    ~select(Round.id).where(Round.campaign_problem_id == Item.id, Round.status == "running").exists(),
)
#: Campaigns whose waiting problems are skipped.
_CANCELLED: Final = select(CampaignRow.id).where(CampaignRow.status == "cancelled")
#: Whether time, silence, budgets or a status can change anything. If not, only changes by hand can.
_AT_WORK: Final = select(or_(
    select(WorkerRow.id).where(WorkerRow.status != "gone").exists(),
    select(CampaignRow.id).where(CampaignRow.status == "running").exists(),
    select(Item.id).where(Item.status == "waiting", Item.campaign_id.in_(_CANCELLED)).exists(),
))  # fmt: skip


class Sweeper:
    """Sweeps one store. A worker's silence counts only while a service was up to hear it, by a clock that nobody set.

    Attributes:
        failures: those that were told since a sweep succeeded.

    Args:
        rest: called between the steps of a sweep, which ends there if it says so.
    """

    def __init__(
        self, store: Store, timing: Timing = TIMING, clock: Callable[[], float] = time.monotonic,
        rest: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._store, self._timing, self._clock, self._queue = store, timing, clock, queue_of(store)
        self._rest, self.failures = rest, Repeats()
        self._listening_since = self._last_sweep = clock()
        self._last_reconciled = self._last_deleted = -math.inf
        self._ahead = math.nan
        self._settled, self._released = 0, False

    @property
    def pause_seconds(self) -> float:
        """Between two sweeps."""
        return min(0.5, self._timing.heartbeat_seconds / 2)

    def sweep(self) -> Counter[str]:
        """One pass over everything, or a look whether there is anything; what it changed, by kind.

        Raises:
            StoreError: the database refuses a step, or cannot be used: silence is then counted anew. Where it can be
                used, the other steps have been run.
        """
        swept, at = Counter[str](), self._clock()
        if at - self._last_sweep > self._timing.heartbeat_seconds:
            # This process slept, and perhaps no service heard the workers meanwhile. They may have been silent for a
            # heartbeat before: together that could be too long.
            self._listening_since = at
        try:
            if at - self._last_reconciled < RECONCILE_EVERY_SECONDS and not self._at_work():
                return swept
            self._run(self._steps(at), swept)
        except StoreError:
            # Where the database answers and refuses another step each time, workers are heard, and may be lost.
            if "workers lost" not in swept or self._clock() - at > self._timing.heartbeat_seconds / 2:
                self._listening_since = self._clock()
            raise
        finally:
            self._last_sweep = self._clock()
        return +swept

    def _run(self, steps: Iterator[Step], swept: Counter[str]) -> None:
        """Runs the steps, those after one that fails too, and adds what they change to `swept`.

        Raises:
            Exception: of the first step that failed; those of later ones are logged.
        """
        first: Exception | None = None
        for kind, step in steps:
            try:
                found = step()
                swept.update(found if isinstance(found, Counter) else {kind: found})
            except Exception as error:
                if first is None:
                    first = error
                elif self.failures.is_news(error):
                    _log.warning("a step of a sweep failed: %s", error, exc_info=not isinstance(error, StoreError))
                if self._rest() or not self._usable():
                    # Every other step would wait until it gives up on the database.
                    break
            if self._rest():
                break
        if first is not None:
            raise first

    # -------------------------------------------------------------------------------------------- steps

    def _steps(self, at: float) -> Iterator[Step]:
        """What a sweep that began then does, in order, each with a name for the rows that it changes."""
        yield "workers lost", partial(self._lose_workers, at)
        if at - self._last_reconciled >= RECONCILE_EVERY_SECONDS:
            # Before the steps: if one fails each time, the others are not repeated without a pause.
            self._last_reconciled = at
            yield "open problems without a round put back", partial(self._change, ROUNDLESS, status="waiting")
            yield "jobs repaired", self._align
            yield "problems with revoked bests", self._settle_revocations
            if not self._released:
                yield "problems of cards known now", self._release
        cancelled = Item.campaign_id.in_(_CANCELLED)
        yield "problems skipped", partial(self._skip, "the campaign was cancelled", cancelled)
        yield "budgets spent", self._spend_budgets
        yield "campaigns finished", self._finish_campaigns
        if at - self._last_deleted >= DELETE_EVERY_SECONDS:
            yield "old … deleted", partial(self._delete_old, at)

    def _usable(self) -> bool:
        try:
            self._store.check_writable()
        except StoreError:
            return False
        return True

    def _at_work(self) -> bool:
        with self._store.transaction() as session:
            return bool(session.scalar(_AT_WORK))

    def _settle_revocations(self) -> int:
        """Completes revocations that were cut short; reads all bests only after a new one."""
        newest = revocations.newest(self._store)
        count = revocations.settle(self._store) if newest != self._settled else 0
        self._settled = newest
        return count

    def _release(self) -> int:
        count = revocations.release(self._store)
        self._released = True
        return count

    def _delete_old(self, at: float) -> Counter[str]:
        deleted = delete_old(self._store, self._timing.keep_days)
        if max(deleted.values(), default=0) < AT_ONCE:
            self._last_deleted = at
        return deleted

    def _clock_was_set(self, moment: datetime) -> bool:
        """Whether the database's clock jumped since the last look, as it does when a laptop wakes up."""
        before, self._ahead = self._ahead, moment.timestamp() - time.monotonic()
        return abs(self._ahead - before) > self._timing.heartbeat_seconds / 2

    def _lose_workers(self, at: float) -> int:
        """Declares workers gone that the queue has forgotten, and takes their rounds."""
        with self._store.transaction(writes=True) as session:
            # On SQLite it waits here for its turn to write, as heartbeats do.
            session.connection()
            if self._clock_was_set(now(session)) or self._clock() - at > self._timing.heartbeat_seconds / 2:
                # What was heard before has times of another clock, or nobody was heard meanwhile.
                self._listening_since = self._clock()
            if at - self._listening_since < self._timing.silence_seconds:
                return 0
            self._queue.prune(session, self._timing.silence_seconds)
        lost = select(WorkerRow).where(WorkerRow.status != "gone", ~self._queue.registered).order_by(WorkerRow.id)
        count = 0
        while True:
            with self._store.transaction(writes=True) as session:
                worker = session.scalars(lost.limit(1).with_for_update(of=WorkerRow)).one_or_none()
                if worker is None:
                    return count
                silence = f"silent for {self._timing.silence_seconds:g} s"
                # Services may have been away since, or the store was restored: nobody worked on the round meanwhile.
                last = utc(worker.beat_at) + timedelta(seconds=self._timing.silence_seconds)
                held = select(Round).where(Round.worker_id == worker.id, Round.status == "running").with_for_update()
                if (round_ := session.scalars(held).one_or_none()) is not None:
                    self._lose_round(session, round_, f"worker {worker.name} was {silence}", last)
                sign_off(session, self._queue, worker, silence)
                count += 1

    def _lose_round(self, session: Session, round_: RoundRow, reason: str, last: datetime) -> None:
        moment = now(session)
        item = session.get_one(Item, round_.campaign_problem_id, with_for_update=True)
        account(session, round_, item, 0.0, 0, moment, last)
        round_.status, round_.reason, item.started = "lost", reason, True
        record_failure(round_, item, reason, (), self._timing.attempts, moment)
        job, round_.job_id = round_.job_id, None
        session.flush()
        self._queue.release(session, job, again=item.status == "waiting")

    def _spend_budgets(self) -> int:
        """When a campaign's GPU time is spent, started problems get their finals, and the others are skipped."""
        limit = CampaignRow.budget["gpu_seconds"].as_float()
        running = select(CampaignRow.id).join(Item, Item.campaign_id == CampaignRow.id)
        limited = running.where(CampaignRow.status == "running", limit.is_not(None)).group_by(CampaignRow.id)
        with self._store.transaction() as session:
            spent = session.scalars(limited.having(func.sum(Item.gpu_seconds) >= limit)).all()
        changed = 0
        for campaign_id in spent:
            ours = Item.campaign_id == campaign_id
            changed += self._skip(SPENT, ours, ~Item.started)
            unclosed = (ours, Item.started, ~Item.closing, Item.status.in_(("waiting", "open")))
            changed += self._change(unclosed, closing=True)
        if changed:
            self._align()
        return changed

    def _finish_campaigns(self) -> int:
        """Finishes campaigns whose problems have all ended, also paused ones: nothing is left to resume."""
        left = select(Item.id).where(Item.campaign_id == CampaignRow.id, Item.status.in_(("waiting", "open"))).exists()
        ended = (CampaignRow.status.in_(("running", "paused")), ~left)
        skipped = select(Item.reason).where(Item.campaign_id == CampaignRow.id, Item.status == "skipped").limit(1)
        because = func.coalesce(skipped.scalar_subquery(), "every problem has ended")
        return self._change(ended, CampaignRow, status="finished", stopped_because=because, finished_at=self._now())

    # ------------------------------------------------------------------------------------------ writing

    def _skip(self, reason: str, *where: SQLCoreOperations[bool]) -> int:
        """Ends waiting problems without a result."""
        waiting = (*where, Item.status == "waiting")
        return self._change(waiting, status="skipped", reason=reason, ended_at=self._now())

    def _align(self) -> int:
        with self._store.transaction(writes=True, slow=True) as session:
            return self._queue.align(session)

    def _change(
        self, where: Sequence[SQLCoreOperations[bool]], table: type[CampaignProblemRow | CampaignRow] = Item,
        **values: object,
    ) -> int:  # fmt: skip
        """Changes the rows that meet the conditions, a part in each transaction: reports don't wait for long, and the
        next sweep goes on with what a failure leaves."""
        with self._store.transaction() as session:
            ids = session.scalars(select(table.id).where(*where).order_by(table.id)).all()
        count = 0
        for start in range(0, len(ids), CHANGED_AT_ONCE):
            if start and self._rest():
                break
            part = ids[start : start + CHANGED_AT_ONCE]
            # The conditions once more: a round, or another service's sweep, may have changed a row meanwhile.
            changes = update(table).where(table.id.in_(part), *where).values(values)
            with self._store.transaction(writes=True) as session:
                changed = session.execute(changes.execution_options(synchronize_session=False))
                count += cast("CursorResult[object]", changed).rowcount
        return count

    def _now(self) -> ColumnElement[datetime]:
        return sql_now("sqlite" if self._store.embedded else "postgresql")


class Maintenance:
    """Sweeps about twice a second between `__enter__` and `__exit__`; retries while the database is unreachable."""

    def __init__(self, store: Store, timing: Timing = TIMING) -> None:
        self._ended = threading.Event()
        self._sweeper = Sweeper(store, timing, rest=lambda: self._ended.wait(_REST_SECONDS))
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        # A step that waits for another process's lock ends with this one.
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        failures = self._sweeper.failures
        while not self._ended.wait(self._sweeper.pause_seconds):
            try:
                swept = self._sweeper.sweep()
            except StoreError as error:
                # Not twice a second for as long as the database is away.
                if failures.is_news(error):
                    _log.warning("a step of a sweep failed: %s", error)
            except Exception as error:
                # A defect must not end the thread: lost workers would then keep their rounds.
                if failures.is_news(error):
                    _log.exception("a sweep failed")
            else:
                failures.end()
                for kind, count in swept.items():
                    _log.info("%s: %d", kind, count)
