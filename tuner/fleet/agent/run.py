"""One round on one device: what `gemmtune tune` does for a whole study, for some seconds of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from space.config import Config
from space.family import config_named
from space.problem import Problem
from tuner.errors import NothingCorrect, ResultRefused
from tuner.fleet.agent.desk import Desk
from tuner.fleet.campaigns.records import Announcement, RoundReport, RoundTask, StudyHistory
from tuner.prediction.learned import LearnedModel
from tuner.studying.candidates import candidates_for
from tuner.studying.choice import Guidance
from tuner.studying.screening import Search, screen
from workers.errors import RecordingError, WorkerError
from workers.measurement import Measurement, Provenance, Stage
from workers.ports import Round, Worker

#: Screened at most by one round, so that a report stays far below the limit on bodies.
MOST_OF_A_ROUND: Final = 512
T = TypeVar("T")


class Abandoned(Exception):
    """The round is not ours any more: whatever it measured is dropped."""


class Insist(Protocol):
    """Makes a call to the desk, again and again while the service can't be reached."""

    def __call__(self, call: Callable[[], T]) -> T:
        """The call's answer.

        Raises:
            Abandoned: the round is not ours any more.
        """
        ...


class RoundRun:
    """A round being run.

    Args:
        stopping: whether to stop at the next candidate and report what there is.
        model: what is expected of candidates; the analytic model's estimate where there is none.
    """

    def __init__(
        self, task: RoundTask, worker: Worker, desk: Desk, insist: Insist, stopping: Callable[[], bool],
        model: LearnedModel | None = None,
    ) -> None:  # fmt: skip
        self._task, self._worker, self._desk, self._insist, self._stopping = task, worker, desk, insist, stopping
        self._model = model
        self._problem = Problem.from_key(task.problem_key)
        self._measured: list[Measurement] = []
        self._provenance: Provenance | None = None
        self._busy_seconds = 0.0

    def run(self) -> RoundReport:
        """Measures, and says how it went; never raises for what a device or a candidate does.

        Raises:
            Abandoned: the round is not ours any more.
        """
        ended = failure = ""
        hopeless = False
        try:
            ended = self._measure()
        except NothingCorrect as error:
            failure, hopeless = str(error), True
        except (WorkerError, ResultRefused) as error:
            # What was not recorded is not recorded at the next try either.
            failure, hopeless = str(error), isinstance(error, RecordingError)
        return RoundReport(
            tuple(self._measured), self._provenance, self._busy_seconds, ended, failure, hopeless, self._stopping()
        )

    def _measure(self) -> str:
        """Screens and, at the study's end, runs the finals; why the study is at its end, if it is."""
        candidates = candidates_for(self._problem, self._worker)
        with self._busy():
            round_ = self._worker.begin(self._problem, self._task.policy)
        self._provenance = provenance = round_.provenance
        past = self._insist(lambda: self._desk.begin(self._task, provenance))
        until = time.monotonic() + self._task.seconds
        guidance = Guidance(seed=self._task.round_id, model=self._model, winners=past.winners)
        search = Search(self._problem, self._worker.facts.name, candidates, self._task.budget, past.tried, guidance)
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
        """Measures the suspects that were not measured before."""
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
            if self._stopping():
                return

    def _finals(self, round_: Round, search: Search, past: StudyHistory) -> str:
        finalists = search.finalists(self._task.finalists)
        if finalists and not (past.finals_done and not self._measured):
            self._announce("final", finalists)
            with self._busy():
                self._measured += round_.finals(finalists, self._task.rounds)
        return search.ended

    def _announce(self, stage: Stage, batch: Sequence[Config]) -> None:
        announcement = Announcement(stage, tuple(config.key for config in batch))
        self._insist(lambda: self._desk.announce(self._task, announcement))

    @contextmanager
    def _busy(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._busy_seconds += time.monotonic() - started
