"""The agent's loop: register, claim a round, run it, report it, until asked to leave.

The main thread works; a second one sends heartbeats, whose replies say when a round should stop. Calls that fail
because the service is unreachable are retried for as long as the agent has patience and holds the round, so a restart
of the service costs only the wait.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tuner.errors import (
    FleetError,
    OtherVersion,
    ResultRefused,
    SlotTaken,
    StoreError,
    StoreGone,
    Unreachable,
    WorkerGone,
)
from tuner.evidence.columns import storable
from tuner.fleet.agent.backoff import Backoff, asked
from tuner.fleet.agent.coordinator import Coordinator
from tuner.fleet.agent.round_runner import Abandoned, RetryWhileHeld, RoundRunner
from tuner.fleet.campaigns.records import RoundReport, RoundTask, slot_of
from tuner.prediction.learned import LearnedModel
from tuner.repeats import Repeats
from tuner.settings import END_SECONDS
from workers.errors import CacheError
from workers.ports import Worker

_log = logging.getLogger("gemmtune.agent")
T = TypeVar("T")

#: A process that replaces a dead one on its GPU waits this long for the service to notice the death; where workers may
#: be silent for longer, so much longer than they may.
_SLOT_SECONDS: Final = 30.0
_NOTICED_SECONDS: Final = 10.0
#: An agent that was told to end tries to report its round for this share of the time that it has.
_REPORT_SHARE: Final = 0.45
_MOST_REASON: Final = 1_000
#: An idle agent claims after this many heartbeats at the latest: a lost round starts again within two of them and 5 s.
_IDLE_HEARTBEATS: Final = 0.6


class Agent:
    """One worker process on one device.

    Args:
        open_device: opens the worker port; called again after a round that failed on the device.
        idle_seconds: longest delay between two claims while no round is waiting; by default a share of the heartbeat
            interval.
        leave_when_idle: leave at the first claim that finds no round.
        model_of: gives the learned model of a device, or None.
        end_seconds: from the first call of `leave` to the end of this process, in all.
        patience_seconds: a call is retried for this long; by default for ever.

    Attributes:
        rounds: rounds that were reported.
    """

    def __init__(
        self, coordinator: Coordinator, open_device: Callable[[], Worker], name: str, idle_seconds: float | None = None,
        leave_when_idle: bool = False, model_of: Callable[[str], LearnedModel | None] = lambda device: None,
        end_seconds: float = END_SECONDS, patience_seconds: float = math.inf,
    ) -> None:  # fmt: skip
        self._coordinator, self._open_device, self._name = coordinator, open_device, name
        self._idle_seconds, self._leave_when_idle = idle_seconds, leave_when_idle
        self._model_of, self._end_seconds, self._patience_seconds = model_of, end_seconds, patience_seconds
        self._leaving = threading.Event()
        self._told_at = math.inf
        self.rounds = 0

    def leave(self) -> None:
        """Makes the agent report its round as it is, if the service takes the report soon, and end.

        Safe to call from signal handlers.
        """
        self._told_at = min(self._told_at, time.monotonic())
        self._leaving.set()

    def close_device(self) -> None:
        """Ends the device's own process, whatever the agent is doing; for a process that ends at once."""
        self._device.close()

    def _over(self) -> bool:
        return time.monotonic() - self._told_at > _REPORT_SHARE * self._end_seconds

    def run(self) -> None:
        """Works until asked to leave.

        Raises:
            WorkerError: the device or the build cache can't be used; its round was reported.
            FleetError: the service rejects this worker permanently, or was out of reach for too long.
            StoreGone: the store's file, or its log, was moved, deleted or replaced.
        """
        self._device = self._open_device()
        self._model = self._model_of(self._device.facts.name)
        try:
            while not self._leaving.is_set():
                try:
                    self._serve()
                except WorkerGone as gone:
                    _log.warning("%s", gone)
        finally:
            self._device.close()

    def _serve(self) -> None:
        """Registers, then runs rounds until asked to leave.

        Raises:
            WorkerGone: the service counts this worker as gone; it has to register again.
        """
        facts = self._device.facts
        welcome = self._until_reached(lambda: self._coordinator.register(self._name, facts))
        if welcome is None:
            return
        _log.info("worker %d: %s on %s", welcome.worker_id, self._name, facts.name)
        with _Heartbeats(self._coordinator, welcome.worker_id, welcome.heartbeat_seconds) as heartbeats:
            while not (self._leaving.is_set() or heartbeats.draining.is_set()):
                task = self._until_reached(lambda: self._claim(welcome.worker_id))
                if heartbeats.gone.is_set():
                    raise WorkerGone(f"worker {welcome.worker_id} missed its heartbeats: registering again")
                if task is None:
                    if self._leave_when_idle:
                        break
                    # Jitter, so that idle agents don't claim in lockstep.
                    longest = self._idle_seconds or _IDLE_HEARTBEATS * welcome.heartbeat_seconds
                    self._leaving.wait(longest * random.uniform(0.5, 1.0))
                    continue
                try:
                    usable = self._round(task, heartbeats)
                except (CacheError, OtherVersion):
                    self._until_reached(lambda: self._leave(welcome.worker_id), most_tries=3)
                    raise
                if not (usable or self._leaving.is_set()):
                    self._device.close()
                    self._device = self._open_device()
            if not self._over():
                self._until_reached(lambda: self._leave(welcome.worker_id), most_tries=3)
        self._leaving.set()

    def _claim(self, worker_id: int) -> RoundTask | None:
        """The next round.

        Raises:
            WorkerGone: another worker has this number, whose round is left to it.
        """
        task = self._coordinator.claim(worker_id)
        if task and task.slot not in ("", slot_of(self._name, self._device.facts)):
            raise WorkerGone(f"the worker on {task.slot} has number {worker_id} now: registering again")
        return task

    def _leave(self, worker_id: int) -> None:
        """Leaves; hands back a round that it holds unknowingly, because the answer to its last claim was lost."""
        try:
            self._coordinator.leave(worker_id)
        except (Unreachable, WorkerGone):
            raise
        except FleetError:
            task = self._claim(worker_id)
            if task is None:
                raise
            self._coordinator.finish(task, RoundReport(handed_back=True))
            self._coordinator.leave(worker_id)

    def _round(self, task: RoundTask, heartbeats: _Heartbeats) -> bool:
        """Runs and reports one round; False if the device has to be reopened.

        Raises:
            CacheError: this machine can keep no build; the round was handed back.
            OtherVersion: the service takes no reports of this version; the same.
        """
        retry = RetryWhileHeld(heartbeats.gone, self._over, self._patience_seconds)
        runner = RoundRunner(
            task, self._device, self._coordinator, retry, lambda: self._stopping(heartbeats), self._model
        )  # fmt: skip
        heartbeats.hold(task.round_id, runner)
        try:
            report = runner.run()
            try:
                retry(lambda: self._coordinator.finish(task, report))
            except OtherVersion as refusal:
                # As no fault of the problem's: reports as failed, one such worker would park a whole campaign.
                runner.unfit = refusal
                retry(lambda: self._coordinator.finish(task, RoundReport(handed_back=True)))
            except ResultRefused as refusal:
                _log.error("round %d: the service refused the report: %s", task.round_id, refusal)
                why = storable(f"the report was refused: {refusal}", _MOST_REASON)
                blank = RoundReport(busy_seconds=report.busy_seconds, failure=why)
                retry(lambda: self._coordinator.finish(task, blank))
        except Abandoned as abandoned:
            _log.warning("round %d was abandoned: %s", task.round_id, abandoned)
            return not runner.closed
        finally:
            heartbeats.hold(None)
        self.rounds += 1
        if isinstance(runner.unfit, OtherVersion):
            advice = "upgrade the service first, then its workers"
            raise OtherVersion(f"the service is of another version than this worker ({runner.unfit}): {advice}")
        if runner.unfit:
            raise runner.unfit
        if report.failure:
            _log.error("round %d failed: %s", task.round_id, report.failure)
        return not runner.closed and (not report.failure or report.hopeless)

    def _stopping(self, heartbeats: _Heartbeats) -> bool:
        return self._leaving.is_set() or heartbeats.stop.is_set()

    def _until_reached(self, call: Callable[[], T], most_tries: int | None = None) -> T | None:
        """Retries a call until the service responds; None if asked to leave in the meantime.

        Raises:
            SlotTaken: another worker holds our GPU, and has held it for longer than a dead one could.
            StoreGone: no later call would reach the store.
            Unreachable, StoreError: the service has not answered for too long.
        """
        backoff, tries, started = Backoff(), 0, time.monotonic()
        while True:
            try:
                return call()
            except SlotTaken as taken:
                if time.monotonic() - started > max(_SLOT_SECONDS, taken.retry_after + _NOTICED_SECONDS):
                    raise
                _log.warning("%s", taken)
                wait = backoff.after(taken)
            except StoreGone:
                raise
            except (Unreachable, StoreError) as error:
                if time.monotonic() - started >= self._patience_seconds:
                    raise
                _log.warning("%s; trying again", error)
                wait = backoff.after(error)
            tries += 1
            if self._over() or (most_tries is not None and tries >= most_tries):
                return None
            if self._leaving.wait(wait) and most_tries is None:
                return None


class _Heartbeats:
    """Sends heartbeats from a thread of its own.

    Attributes:
        stop: set when the current round is no longer needed.
        gone: set when the service counts this worker as gone.
        draining: set when the worker should finish its round and leave.
    """

    def __init__(self, coordinator: Coordinator, worker_id: int, seconds: float) -> None:
        self._coordinator, self._worker_id, self._seconds = coordinator, worker_id, seconds
        self._round: int | None = None
        self._runner: RoundRunner | None = None
        self._ended = threading.Event()
        self.stop, self.gone, self.draining = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)

    def __enter__(self) -> _Heartbeats:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def hold(self, round_id: int | None, runner: RoundRunner | None = None) -> None:
        """Sets the round that the next heartbeats carry, with its progress."""
        self._round, self._runner = round_id, runner
        self.stop.clear()

    def _beat(self) -> None:
        wait, failures = self._seconds, Repeats()
        while not self._ended.wait(wait):
            held, runner, wait, began = self._round, self._runner, self._seconds, time.monotonic()
            try:
                orders = self._coordinator.beat(self._worker_id, held, runner.progress if runner else None)
            except WorkerGone:
                self.gone.set()
                self.stop.set()
                return
            except Exception as error:
                # The round continues, and the next heartbeat comes sooner, or it would find the worker gone.
                if failures.is_news(error):
                    _log.warning("a heartbeat failed: %s", error)
                # One that was not answered has taken an interval already.
                took = time.monotonic() - began
                wait = max(min(max(self._seconds / 5 - took, asked(error)), self._seconds - took), 0.0)
                continue
            failures.end()
            if orders.drain:
                self.draining.set()
            if orders.stop and held is not None and held == self._round:
                self.stop.set()
