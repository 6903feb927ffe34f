"""Stores for the pages: many bests, one problem with many measurements, one as a study leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from sqlalchemy import text

from benchmarks.service_table import CONFIGS, fill
from space.config import Config
from space.problem import Problem
from tuner.evidence.picks import bests_of
from tuner.evidence.records import StudyKey
from tuner.evidence.store import Store
from workers.measurement import Measurement, Outcome
from workers.recording import Recording, read_recording

#: What one problem shows is a recording of a real GPU.
RECORDING: Final = Path(__file__).resolve().parents[2] / "recorded" / "h200" / "bf16_nt_4096x4096x4096.parquet"
_SCREENED: Final = 96
#: Every so many candidates of the recording are stored as failed, as happens on other cards.
_FAILED: Final = 16
_COPIED: Final = (
    "device_id, provenance_id, series, policy, outcome, samples_us, detail, verification, clocks, build_digest, note, "
    "taken_at"
)


@dataclass(frozen=True, slots=True)
class Filled:
    """A store for the pages.

    Attributes:
        crowded: the problem with many measurements.
        usual: the problem that is as a study leaves it.
        best: any other with a best.
    """

    store: Store
    crowded: Problem
    usual: Problem
    best: Problem


def filled(path: Path, bests: int, measurements: int) -> Filled:
    """A new store with made-up bests and measurements, all of which say so, and one recorded problem.

    A study of the crowded problem measures each of its configs once; there are at least as many bests.
    """
    store = Store.open(f"sqlite:///{path}")
    problems = fill(store, bests)
    with store.transaction(writes=True) as session:
        for number in range(measurements // CONFIGS):
            study = bests + 1 + number
            session.execute(text(
                "INSERT INTO study (id, problem_id, device_id, policy, family, source, generation, status, "
                "stopped_because, created_at) SELECT :study, problem_id, device_id, policy, family, source, :number, "
                "status, stopped_because, created_at FROM study WHERE id = 1"
            ), {"study": study, "number": number + 1})  # fmt: skip
            # The last study lacks one, which is the best's.
            many = CONFIGS - (number == measurements // CONFIGS - 1)
            session.execute(text(
                f"INSERT INTO measurement (id, study_id, problem_id, config_id, stage, median_us, {_COPIED}) "
                f"SELECT :first + id, :study, 1, id, 'screen', 200 + 100.0 * ((id * 7919 + :study) % 997) / 997, "
                f"{_COPIED} FROM measurement WHERE id <= :count"
            ), {"first": bests + number * CONFIGS, "study": study, "count": many})  # fmt: skip
    return Filled(store, problems[0], recorded(store), problems[1])


def recorded(store: Store) -> Problem:
    """Stores the beginning of a recorded search, some of it as failed, with its finals; returns its problem."""
    recording = read_recording(RECORDING)
    screened = [_failed(row) if place % _FAILED == 7 else row
                for place, row in enumerate(islice(distinct(recording, "screen"), _SCREENED))]  # fmt: skip
    store_study(store, recording, screened, distinct(recording, "final"))
    return recording.problem


def store_study(store: Store, recording: Recording, screened: Sequence[Measurement], finals: list[Measurement]) -> None:
    """Stores measurements of a recording as one finished study, with its best."""
    first, provenance = recording.measurements[0]
    # The first choice of the library comes first of its own.
    finals = sorted(finals, key=lambda final: (final.config.family == "cublaslt", final.config.knobs.get("rank", 0)))
    key = StudyKey(recording.problem, recording.facts.name, "recorded", first.policy, screened[0].config.family, "s")
    study = store.begin_study(key)
    store.record_many(study.id, screened, provenance)
    stored = store.record_many(study.id, finals, provenance)
    correct = [final for final in stored if final.measurement.outcome is Outcome.CORRECT]
    store.set_bests(bests_of(recording.problem, correct, len(screened), {}))
    store.finish_study(study.id, f"the budget of {len(screened)} candidates is spent")


def _failed(row: Measurement) -> Measurement:
    return replace(row, outcome=Outcome.LAUNCH, samples_us=(), verification=None, clocks=None,
                   detail="stored as failed, for a benchmark")  # fmt: skip


def distinct(recording: Recording, stage: str) -> list[Measurement]:
    """The first measurement of each config in one stage of a recording."""
    seen: dict[Config, Measurement] = {}
    for row, _ in recording.measurements:
        if row.stage == stage:
            seen.setdefault(row.config, row)
    return list(seen.values())
