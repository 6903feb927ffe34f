"""Recorder: measures many candidates of one problem on a real GPU and writes them as a recording.

It resumes like a study, through the same store, and measures nothing twice. The finals are those of a tune that tried
the same candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from space.config import Config
from space.family import families_for
from space.problem import Problem
from tuner.counts import counted
from tuner.errors import AlreadyMeasured, NothingCorrect
from tuner.evidence.picks import LIBRARY
from tuner.evidence.records import StoredMeasurement, StudyKey
from tuner.evidence.store import Store
from tuner.prediction.expectation import expected_of
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.studying.candidates import candidates_for, spread
from tuner.studying.guidance import Guidance
from tuner.studying.records import names_of, source_of
from tuner.studying.study import Budget, tune
from workers.measurement import Measurement, Outcome
from workers.ports import Round, Worker
from workers.recording import check_folder, file_name, write_recording

#: Longest time between commits, in seconds. A commit costs as much time as a dozen measurements.
KEEP_SECONDS: Final = 0.5
#: Candidates of a family that the learned model ranks: those that the analytic model ranks first.
JUDGED: Final = 4_096

Watch = Callable[[int, int, Measurement], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Contents of one recording."""

    path: Path
    screened: int
    correct: int
    finals: tuple[Measurement, ...]


def record(
    store: Store,
    worker: Worker,
    problem: Problem,
    folder: Path,
    most: int,
    turns: int,
    watch: Watch = lambda done, total, last: None,
    model: LearnedModel | None = None,
) -> Recorded:
    """Measures up to `most` candidates of `problem` and writes `folder/<problem>.parquet`.

    cuBLASLt's candidates are screened beside ours. The winner of the finals becomes the store's best; without `turns`
    there are no finals.

    Args:
        model: ranks the candidates; the analytic model does without it.

    Raises:
        NothingCorrect: no candidate is legal or correct.
        ProblemError: `turns` is out of range.
        RecordingExists: the file exists by the time it is written.
        RecordingError: it can't be written, or `folder` has recordings of another device.
        WorkerError: the device can't be used.
    """
    budget = Budget(most, turns=turns) if turns else None
    check_folder(folder, worker.facts.name)
    wanted = wanted_of(problem, worker, most, model)
    round_ = worker.begin(problem)
    library = list(round_.baselines)
    competing = names_of(families_for(worker.facts.arch, problem))
    own = _Screening(store, worker, round_, problem, competing, wanted)
    # The library's candidates get their own study, because a tune resumes only from our candidates.
    theirs = _Screening(store, worker, round_, problem, LIBRARY, library)
    for count, measurement in enumerate(chain(theirs.run(), own.run()), start=1):
        watch(count, len(own.left) + len(theirs.left), measurement)
    store.finish_study(theirs.study.id, f"recorded {counted(len(library), 'candidate')}")
    screened = own.rows()
    correct = sum(row.measurement.outcome is Outcome.CORRECT for row in screened)
    if not correct:
        raise NothingCorrect(f"none of {len(screened)} candidates of {problem.shape} is correct: nothing to record")
    if budget:
        tune(store, worker, problem, replace(budget, candidates=len(screened)), guidance=Guidance(model), begun=round_)
    else:
        store.finish_study(own.study.id, f"recorded {counted(len(screened), 'candidate')}")
    finals = store.final_series(own.study.id)
    failed = own.failed_beside(finals[0]) if finals else []
    path = folder / file_name(problem)
    rows = [*theirs.rows(), *own.standing(screened, failed), *failed, *finals]
    measured = [(row.measurement, row.provenance) for row in rows]
    write_recording(path, problem, worker.facts, measured, [row.taken_at for row in rows])
    return Recorded(path, len(screened), correct, tuple(stored.measurement for stored in finals))


def wanted_of(problem: Problem, worker: Worker, most: int, model: LearnedModel | None) -> list[Config]:
    """The candidates to record: as many of each competing family, half of them the first of its ranking."""
    listed = candidates_for(problem, worker)
    names = list(dict.fromkeys(config.family for config in listed))
    # What would be answered without a measurement comes first, even against worth rules.
    answered = first_choice(model, problem, worker.facts.profile) if model else None
    wanted = dict.fromkeys([answered.config] if answered else [])
    for name in names:
        own = [config for config in listed if config.family == name]
        if model is not None:
            ahead = own[:JUDGED]
            order = np.argsort(expected_of(problem, ahead, worker.facts.name, model).log_us, kind="stable")
            own = [*(ahead[place] for place in order), *own[JUDGED:]]
        wanted |= dict.fromkeys(spread(own, max(most // len(names), 1)))
    return list(wanted)[:most]


class _Screening:
    """The candidates of one study; an earlier run may have screened some of them."""

    def __init__(
        self, store: Store, worker: Worker, round_: Round, problem: Problem, family: str,
        wanted: Sequence[Config],
    ) -> None:  # fmt: skip
        self._store, self._round = store, round_
        source = source_of(round_.provenance)
        self.study = store.begin_study(
            StudyKey(problem, worker.facts.name, worker.facts.kind, round_.policy, family, source)
        )
        done = {row.measurement.config.key for row in self.rows()}
        self.left = [config for config in wanted if config.key not in done]

    def run(self) -> Iterator[Measurement]:
        """Measures the rest and stores it in small batches: a killed run loses half a second's work."""
        taken: list[Measurement] = []
        kept_at = time.monotonic()
        try:
            for measurement in self._round.screen(self.left):
                taken.append(measurement)
                if time.monotonic() - kept_at > KEEP_SECONDS:
                    self._keep(taken)
                    kept_at = time.monotonic()
                yield measurement
        finally:
            self._keep(taken)

    def _keep(self, taken: list[Measurement]) -> None:
        if not taken:
            return
        try:
            self._store.record_many(self.study.id, taken, self._round.provenance)
        except AlreadyMeasured:
            # Another process records the same problem: what it has measured meanwhile counts as well as ours.
            for measurement in taken:
                with suppress(AlreadyMeasured):
                    self._store.record(self.study.id, measurement, self._round.provenance)
        taken.clear()

    def rows(self) -> list[StoredMeasurement]:
        """All screenings, including those of earlier runs."""
        return self._store.measurements_of(self.study.id, "screen")

    def standing(
        self, screened: Sequence[StoredMeasurement], failed: Sequence[StoredMeasurement]
    ) -> list[StoredMeasurement]:
        """Screenings without those that were right of a build that another study found wrong: who reads a recording
        can't know that.

        Args:
            failed: in the finals, which the recording has too.
        """
        wrong = self._store.refuted_in(self.study.id) - {row.measurement.config.key for row in failed}
        return [row for row in screened if row.measurement.config.key not in wrong]

    def failed_beside(self, final: StoredMeasurement) -> list[StoredMeasurement]:
        """What failed in the same finals: it may have been right in screening, and must not stand as right alone."""
        finals = self._store.measurements_of(self.study.id, "final")
        # Finals are stored together.
        beside = (row for row in finals if row.taken_at == final.taken_at)
        return [row for row in beside if row.measurement.outcome is not Outcome.CORRECT]
