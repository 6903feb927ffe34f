"""Runs one round on one device: a few seconds of the study that `gemmtune tune` runs as a whole."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from space.config import Config
from space.errors import SpaceError
from space.family import config_named
from space.kind import problem_from_key
from tuner.errors import (
    LeaseLost,
    NothingCorrect,
    OtherVersion,
    ResultRefused,
    StoreError,
    StoreGone,
    Unreachable,
    UnstorableValue,
    WorkerGone,
)
from tuner.fleet.agent.backoff import Backoff
from tuner.fleet.agent.coordinator import Coordinator
from tuner.fleet.agent.giving_up import GivenUp, unless
from tuner.fleet.campaigns.records import RoundProgress, RoundReport, RoundTask, StudyHistory
from tuner.prediction.learned import LearnedModel
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import Guidance
from tuner.studying.screening import Search, screen
from workers.errors import CacheError, RecordingError, WorkerError
from workers.measurement import Measurement, Outcome, Provenance, Stage
from workers.ports import Round, Worker

#: Most candidates that one round screens; keeps a report far below the size limit of a request body.
MOST_OF_A_ROUND: Final = 512
_log = logging.getLogger("gemmtune.agent")
T = TypeVar("T")


class Abandoned(Exception):
    """The agent no longer holds the round; its measurements are dropped."""


class RetryWhileHeld:
    """Repeats calls while the service is unreachable, the agent holds its round and there is time.

    Args:
        gone: set when the service counts the worker as gone.
        over: True once an agent that was told to end may wait for the service no longer.
        patience_seconds: a call is repeated for this long.
    """

    def __init__(
        self, gone: threading.Event, over: Callable[[], bool] = lambda: False, patience_seconds: float = math.inf
    ) -> None:
        self._gone, self._over, self._patience_seconds = gone, over, patience_seconds

    def __call__(self, call: Callable[[], T]) -> T:
        """The call's result.

        Raises:
            Abandoned: the agent no longer holds the round.
            ResultRefused: a value of the call can't be stored, now or later.
            StoreGone: no later call would reach the store.
            Unreachable, StoreError: the service has not answered for too long.
        """
        backoff, started = Backoff(), time.monotonic()
        while True:
            try:
                return call()
            except (LeaseLost, WorkerGone) as lost:
                raise Abandoned(str(lost)) from lost
            except UnstorableValue as error:
                raise ResultRefused(str(error)) from error
            except StoreGone:
                raise
            except (Unreachable, StoreError) as error:
                if time.monotonic() - started >= self._patience_seconds:
                    raise
                _log.warning("%s; trying again", error)
                wait = backoff.after(error)
            if self._over():
                raise Abandoned("this worker was told to end, and the service took no report")
            if self._gone.wait(wait):
                raise Abandoned("the service counts this worker as gone")


class RoundRunner:
    """Runs one round.

    Args:
        stopping: True once the round should stop at the next candidate and report what it has.
        model: predicts candidates' times; without one, the analytic model's estimate is used.

    Attributes:
        unfit: why this worker can run no round, whatever the problem; None while it can.
        closed: whether the device was closed, to end finals that nobody waits for.
    """

    def __init__(
        self, task: RoundTask, worker: Worker, coordinator: Coordinator, retry: RetryWhileHeld,
        stopping: Callable[[], bool], model: LearnedModel | None = None,
    ) -> None:  # fmt: skip
        self._task, self._worker, self._coordinator, self._retry = task, worker, coordinator, retry
        self._stopping, self._model = stopping, model
        self._measured: list[Measurement] = []
        self._provenance: Provenance | None = None
        self._busy_seconds = 0.0
        self._stage: Stage = "screen"
        self._best_us = math.inf
        self.unfit: CacheError | OtherVersion | None = None
        self.closed = False

    @property
    def progress(self) -> RoundProgress:
        """How far the round has come; any thread may ask."""
        best_us = self._best_us if math.isfinite(self._best_us) else None
        return RoundProgress(self._stage, len(self._measured), best_us)

    def run(self) -> RoundReport:
        """Measures, and returns the report; failures of the device or of candidates are part of the report.

        Raises:
            Abandoned: the agent no longer holds the round.
        """
        ended = failure = ""
        hopeless = False
        try:
            ended = self._measure()
        except NothingCorrect as error:
            failure, hopeless = str(error), True
        except (CacheError, OtherVersion) as error:
            # The machine's or the versions' fault, of which no problem and no candidate is suspected.
            self.unfit = error
        except (WorkerError, ResultRefused) as error:
            # Replaying a measurement that was never recorded fails every time.
            failure, hopeless = str(error), isinstance(error, RecordingError)
        except SpaceError as error:
            # Of a kind or a family that only a newer version or a plugin has: a worker that has it may take it.
            failure = f"this worker can't run the round: {error}; give it the service's version and plugins"
        handed_back = self._stopping() or self.unfit is not None
        return RoundReport(
            tuple(self._measured), self._provenance, self._busy_seconds, ended, failure, hopeless, handed_back
        )

    def _measure(self) -> str:
        """Screens candidates and, when the study has ended, runs the finals.

        Returns:
            Why the study has ended; empty if it continues in another round.
        """
        problem = problem_from_key(self._task.problem_key)
        model = Guidance(self._model).model_of(self._worker.facts.name)
        candidates = candidates_for(problem, self._worker, model=model)
        with self._busy():
            round_ = self._worker.begin(problem)
        self._provenance = provenance = round_.provenance
        past = self._retry(lambda: self._coordinator.begin(self._task, provenance))
        self._best_us = min((trial.median_us for trial in past.tried), default=math.inf)
        until = time.monotonic() + self._task.seconds
        guidance = Guidance(self._model, past.winners)
        search = Search(problem, self._worker.facts.name, candidates, self._task.budget, past.tried, guidance)
        if self._task.only:
            self._only(round_, search)
            return ""

        def go_on() -> bool:
            return time.monotonic() < until and not self._stopping() and len(self._measured) < MOST_OF_A_ROUND

        self._screen(screen(round_, search, self._announce, go_on))
        if not search.ended or self._stopping():
            return ""
        return self._finals(round_, search, past)

    def _only(self, round_: Round, search: Search) -> None:
        """Measures the task's suspects, except those measured before."""
        tried = {entry.config for entry in search.tried}
        left = [config for config in map(config_named, self._task.only) if config not in tried]
        if left and not self._stopping():
            self._announce("screen", left)
            self._screen(round_.screen(left))

    def _screen(self, taken: Iterator[Measurement]) -> None:
        while True:
            with self._busy():
                measurement = next(taken, None)
            if measurement is None:
                return
            self._measured.append(measurement)
            if measurement.outcome is Outcome.CORRECT:
                self._best_us = min(self._best_us, measurement.median_us)
            if self._stopping():
                return

    def _finals(self, round_: Round, search: Search, past: StudyHistory) -> str:
        finalists = search.finalists(self._task.finalists)
        if finalists and not (past.finals_done and not self._measured):
            self._stage = "final"
            self._announce("final", finalists)
            try:
                with self._busy():
                    self._measured += unless(
                        self._stopping, lambda: round_.finals(finalists, self._task.rounds), self._close
                    )
            except GivenUp:
                # What was screened is reported; the next round begins with the finals.
                return ""
        return search.ended

    def _close(self) -> None:
        self.closed = True
        self._worker.close()

    def _announce(self, stage: Stage, batch: Sequence[Config]) -> None:
        keys = [config.key for config in batch]
        self._retry(lambda: self._coordinator.announce(self._task, stage, keys))

    @contextmanager
    def _busy(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._busy_seconds += time.monotonic() - started
