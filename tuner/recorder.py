"""Recorder: measures many candidates of one problem on a real GPU and writes them as a recording.

Resumable like a study, through the same store: what was measured is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from space.family import family_for
from space.problem import Problem
from tuner.errors import NothingCorrect
from tuner.picks import enumeration_order
from tuner.records import StudyKey
from tuner.sampler import spread
from tuner.store.store import Store
from tuner.study import candidates_for, source_of
from workers.measurement import Measurement, Outcome, Policy
from workers.ports import Worker
from workers.recording import file_name, write_recording

#: Candidates of a recording that go through the interleaved finals.
RECORDED_FINALISTS: Final = 16

Watch = Callable[[int, int, Measurement], None]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one recording holds."""

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
    rounds: int,
    watch: Watch = lambda done, total, last: None,
    policy: Policy = Policy.COLD_GRAPH,
) -> Recorded:
    """Measures up to `most` candidates of `problem` and writes `folder/<problem>.parquet`.

    Raises:
        NothingCorrect: nothing legal, or nothing correct.
        RecordingError: the file exists already, or can't be written.
        WorkerError: the device can't be used.
    """
    family = family_for(worker.facts.arch)
    wanted = spread(candidates_for(family, problem, worker), most)
    round_ = worker.begin(problem, policy)
    key = StudyKey(problem, worker.facts.name, worker.facts.kind, policy, family.name, source_of(round_.provenance))
    study = store.begin_study(key)
    done = {stored.measurement.config.key for stored in store.measurements_of(study.id, "screen")}
    left = [config for config in wanted if config.key not in done]
    for count, measurement in enumerate(round_.screen(left), start=len(done) + 1):
        store.record(study.id, measurement, round_.provenance)
        watch(count, len(done) + len(left), measurement)
    screened = store.measurements_of(study.id, "screen")
    correct = [stored.measurement for stored in screened if stored.measurement.outcome is Outcome.CORRECT]
    if not correct:
        raise NothingCorrect(f"none of {len(screened)} candidates of {problem.shape} is correct: nothing to record")
    finals = store.final_series(study.id)
    if not finals:
        ahead = sorted(correct, key=lambda m: (m.median_us, enumeration_order(m.config)))[:RECORDED_FINALISTS]
        taken = round_.finals([m.config for m in ahead], rounds)
        finals = store.record_many(study.id, taken, round_.provenance)
    store.finish_study(study.id, f"recorded {len(screened)} candidates")
    path = folder / file_name(problem)
    rows = [(stored.measurement, stored.provenance) for stored in (*screened, *finals)]
    write_recording(path, problem, worker.facts, rows)
    return Recorded(path, len(screened), len(correct), tuple(stored.measurement for stored in finals))
