"""The agent's life: register, claim, run, report, and go when asked to.

The main thread works; a second one sends heartbeats, and learns from their answers when a round is not wanted
any more. A call that fails because the service is away is made again for as long as the round is ours, so a
service that restarts costs nothing but the wait.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tuner.errors import LeaseLost, ResultRefused, SlotTaken, StoreError, Unreachable, WorkerGone
from tuner.fleet.agent.desk import Desk
from tuner.fleet.agent.run import Abandoned, RoundRun
from tuner.fleet.campaigns.records import RoundReport, RoundTask
from tuner.prediction.learned import LearnedModel
from workers.ports import Worker

_log = logging.getLogger("gemmtune.agent")
T = TypeVar("T")

#: Between two tries of a call while the service is away; doubled each time, up to the second one.
_FIRST_WAIT_SECONDS: Final = 0.2
_LONGEST_WAIT_SECONDS: Final = 3.0
#: A new process on the GPU of one that died waits this long for the service to notice.
_SLOT_SECONDS: Final = 30.0


class Agent:
    """One worker process on one device.

    Args:
        open_device: makes the worker port; called again after a round that the device could not go on with.
        idle_seconds: between two claims while there is nothing to do; the service's heartbeat by default.
        leave_when_idle: leave at the first claim that finds nothing.
        model_of: the learned model of a device, where there is one.
    """

    def __init__(
        self, desk: Desk, open_device: Callable[[], Worker], name: str, idle_seconds: float | None = None,
        leave_when_idle: bool = False, model_of: Callable[[str], LearnedModel | None] = lambda device: None,
    ) -> None:  # fmt: skip
        self._desk, self._open_device, self._name = desk, open_device, name
        self._idle_seconds, self._leave_when_idle = idle_seconds, leave_when_idle
        self._model_of = model_of
        self._leaving = threading.Event()
        self.rounds = 0

    def leave(self) -> None:
        """Asks the agent to report its round with what it has, and to end; safe from signal handlers."""
        self._leaving.set()

    def run(self) -> None:
        """Works until asked to leave.

        Raises:
            WorkerError: the device can't be used; the round that it had was reported.
            FleetError: the service refuses this worker for good.
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
        """One registration: rounds until asked to leave, or until the service forgot us."""
        facts = self._device.facts
        welcome = self._until_reached(lambda: self._desk.register(self._name, facts))
        if welcome is None:
            return
        _log.info("worker %d: %s on %s", welcome.worker_id, self._name, facts.name)
        with _Heart(self._desk, welcome.worker_id, welcome.heartbeat_seconds) as heart:
            while not (self._leaving.is_set() or heart.draining.is_set()):
                task = self._until_reached(lambda: self._desk.claim(welcome.worker_id))
                if heart.gone.is_set():
                    raise WorkerGone(f"worker {welcome.worker_id} was silent for too long: registering again")
                if task is None:
                    if self._leave_when_idle:
                        break
                    # Not all at the same moment.
                    self._leaving.wait((self._idle_seconds or welcome.heartbeat_seconds) * random.uniform(0.5, 1.0))
                    continue
                if not self._round(task, heart):
                    self._device.close()
                    self._device = self._open_device()
            self._until_reached(lambda: self._desk.leave(welcome.worker_id), most_tries=3)
        self._leaving.set()

    def _round(self, task: RoundTask, heart: _Heart) -> bool:
        """Runs and reports one round; whether the device is as good as before."""
        heart.hold(task.round_id)
        insist = _Insist(heart)
        try:
            run = RoundRun(task, self._device, self._desk, insist, lambda: self._told_to_stop(heart), self._model)
            report = run.run()
            try:
                insist(lambda: self._desk.finish(task, report))
            except ResultRefused as refusal:
                _log.error("round %d: the report was refused: %s", task.round_id, refusal)
                blank = RoundReport(busy_seconds=report.busy_seconds, failure=f"the report was refused: {refusal}")
                insist(lambda: self._desk.finish(task, blank))
        except Abandoned as abandoned:
            _log.warning("round %d was dropped: %s", task.round_id, abandoned)
            return True
        finally:
            heart.hold(None)
        self.rounds += 1
        if report.failure:
            _log.error("round %d could not go on: %s", task.round_id, report.failure)
        return not report.failure or report.hopeless

    def _told_to_stop(self, heart: _Heart) -> bool:
        return self._leaving.is_set() or heart.stop.is_set()

    def _until_reached(self, call: Callable[[], T], most_tries: int | None = None) -> T | None:
        """A call made until the service answers; None when we are asked to leave meanwhile.

        Raises:
            SlotTaken: whoever has our GPU is alive: it kept it for longer than a dead one could.
        """
        wait, tries, started = _FIRST_WAIT_SECONDS, 0, time.monotonic()
        while True:
            try:
                return call()
            except SlotTaken as taken:
                if time.monotonic() - started > _SLOT_SECONDS:
                    raise
                _log.warning("%s", taken)
            except (Unreachable, StoreError) as error:
                _log.warning("%s", error)
            tries += 1
            if most_tries is not None and tries >= most_tries:
                return None
            if self._leaving.wait(wait) and most_tries is None:
                return None
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


class _Heart:
    """Sends heartbeats from a thread of its own.

    Attributes:
        stop: the round that is held is not wanted any more.
        gone: the service counts this worker as gone.
        draining: the worker is to finish its round and leave.
    """

    def __init__(self, desk: Desk, worker_id: int, seconds: float) -> None:
        self._desk, self._worker_id, self._seconds = desk, worker_id, seconds
        self._round: int | None = None
        self._ended = threading.Event()
        self.stop, self.gone, self.draining = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)

    def __enter__(self) -> _Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def hold(self, round_id: int | None) -> None:
        """Tells which round the next heartbeats are for."""
        self._round = round_id
        self.stop.clear()

    def _beat(self) -> None:
        wait = self._seconds
        while not self._ended.wait(wait):
            held, wait = self._round, self._seconds
            try:
                orders = self._desk.beat(self._worker_id, held)
            except WorkerGone:
                self.gone.set()
                self.stop.set()
                return
            except Exception as error:
                # The next one may get through, and comes sooner; until then the round goes on.
                _log.warning("no heartbeat: %s", error)
                wait = self._seconds / 5
                continue
            if orders.drain:
                self.draining.set()
            if orders.stop and held is not None and held == self._round:
                self.stop.set()


class _Insist:
    """Makes calls about a round until the service answers, or the round is lost."""

    def __init__(self, heart: _Heart) -> None:
        self._heart = heart

    def __call__(self, call: Callable[[], T]) -> T:
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return call()
            except (LeaseLost, WorkerGone) as lost:
                raise Abandoned(str(lost)) from lost
            except (Unreachable, StoreError) as error:
                _log.warning("%s", error)
            if self._heart.gone.wait(wait):
                raise Abandoned("the service counts this worker as gone")
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
