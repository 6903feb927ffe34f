"""Recording, on the recorded device in a GPU's place: resumed after a stop, complete, never overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from space.config import Config
from space.errors import ProblemError
from space.family import family_named
from tests.support import DEVICE, FAMILY, PROBLEM, measured
from tuner.evidence.records import Policy, StudyKey
from tuner.evidence.store import Store
from tuner.studying.recorder import record
from tuner.studying.saved import save
from tuner.views.studies import page
from workers.build import Build
from workers.errors import RecordingError, RecordingExists
from workers.measurement import Measurement, Outcome
from workers.ports import More, no_more
from workers.recorded import RecordedRound, RecordedWorker
from workers.recording import file_name, read_recording, write_recording

CONFIGS = [FAMILY.config({"tile_n": n}) for n in range(64, 129, 8)]
LIBRARY = [family_named("cublaslt").config({"rank": rank}) for rank in range(3)]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedWorker]:
    from tests.support import FACTS, PROVENANCE

    rows = [measured(config, 10.0 + place) for place, config in enumerate(CONFIGS)]
    rows[3] = measured(CONFIGS[3], outcome=Outcome.TIMEOUT)
    rows += [measured(config, 9.0) for config in LIBRARY]
    rows += [measured(config, 9.0, stage="final", samples=11) for config in (*CONFIGS[:3], *LIBRARY[:2])]
    path = tmp_path / "source" / file_name(PROBLEM)
    write_recording(path, PROBLEM, FACTS, [(row, PROVENANCE) for row in rows])
    with RecordedWorker(path.parent, None) as opened:
        monkeypatch.setattr(opened._builder, "_compile", lambda *_: Build("", b"", 0, (), "", 0.0))
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'record.db'}") as opened:
        yield opened


class Stopped(Exception):
    pass


def test_a_recording_that_was_stopped_goes_on_and_measures_nothing_twice(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    def stop(done: int, total: int, last: Measurement) -> None:
        if done == 6:
            raise Stopped

    with pytest.raises(Stopped):
        record(store, worker, PROBLEM, tmp_path / "out", 100, 10, stop)
    kept = {stored.measurement.config.key for stored in store.page()}
    assert len(kept) == 6
    seen: list[str] = []
    result = record(store, worker, PROBLEM, tmp_path / "out", 100, 10, lambda done, total, m: seen.append(m.config.key))
    assert not kept & set(seen)
    recording = read_recording(result.path)
    screened = [m for m, _ in recording.measurements if m.stage == "screen"]
    assert sorted(m.config.key for m in screened) == sorted(config.key for config in (*CONFIGS, *LIBRARY))
    assert {m.outcome for m in screened} == {Outcome.CORRECT, Outcome.TIMEOUT}
    assert all(recording.taken_at)
    finals = [m.config.family for m, _ in recording.measurements if m.stage == "final"]
    assert finals[-2:] == ["cublaslt", "cublaslt"]


def test_two_that_record_one_problem_at_once_lose_nothing(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    def meanwhile(done: int, total: int, last: Measurement) -> None:
        if done == 2:
            with Store.open(f"sqlite:///{tmp_path / 'record.db'}") as same:
                record(same, worker, PROBLEM, tmp_path / "out", 4, 10)

    with pytest.raises(RecordingExists, match="never overwritten"):
        record(store, worker, PROBLEM, tmp_path / "out", 100, 10, meanwhile)
    screened = [stored.measurement.config.key for stored in store.page(stage="screen")]
    assert sorted(screened) == sorted(config.key for config in (*CONFIGS, *LIBRARY))


def test_the_finals_of_a_recording_take_its_round(
    store: Store, worker: RecordedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU a second one makes the operands and their reference again."""
    begin = Mock(side_effect=worker.begin)
    monkeypatch.setattr(worker, "begin", begin)
    assert record(store, worker, PROBLEM, tmp_path / "out", 4, 10).finals
    assert begin.call_count == 1


@pytest.mark.parametrize("turns", [0, 10])
def test_no_study_of_a_recording_goes_on_running(
    store: Store, worker: RecordedWorker, tmp_path: Path, turns: int
) -> None:
    record(store, worker, PROBLEM, tmp_path / "out", 100, turns)
    assert {study.family: study.status for study in page(store, PROBLEM, DEVICE, 1_000, 10)} == {
        "sm90_wgmma": "finished", "cublaslt": "finished"
    }  # fmt: skip


def test_a_recording_that_is_there_is_kept(store: Store, worker: RecordedWorker, tmp_path: Path) -> None:
    first = record(store, worker, PROBLEM, tmp_path / "out", 4, 10).path.read_bytes()
    with pytest.raises(RecordingError, match="never overwritten"):
        record(store, worker, PROBLEM, tmp_path / "out", 4, 10)
    assert (tmp_path / "out" / file_name(PROBLEM)).read_bytes() == first
    assert not list((tmp_path / "out").glob("*.partial"))


def test_a_folder_of_another_device_is_refused_before_anything_is_measured(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    from tests.support import FACTS, PROVENANCE

    other, path = replace(FACTS, name="NVIDIA H200 (500 W)"), tmp_path / "out" / file_name(PROBLEM.resized(8, 8, 8))
    rows = [(measured(CONFIGS[0], 10.0, PROBLEM.resized(8, 8, 8)), PROVENANCE)]
    write_recording(path, PROBLEM.resized(8, 8, 8), other, rows)
    with pytest.raises(RecordingError, match=r"recordings of NVIDIA H200 \(500 W\), not of NVIDIA H200: give each"):
        record(store, worker, PROBLEM, tmp_path / "out", 4, 10)
    with pytest.raises(RecordingError, match="give each device a folder"):
        save(store, worker.facts.name, tmp_path / "out")
    assert not list(store.page())


def test_without_turns_a_recording_has_no_finals(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    result = record(store, worker, PROBLEM, tmp_path / "out", 8, 0)
    assert not result.finals
    assert {m.stage for m, _ in read_recording(result.path).measurements} == {"screen"}


def test_what_was_recorded_can_be_tuned_on_in_the_same_store(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    from tuner.studying.records import Budget
    from tuner.studying.study import tune

    record(store, worker, PROBLEM, tmp_path / "out", 4, 10)
    report = tune(store, worker, PROBLEM, Budget(9, None, 10))
    assert report.best.tried == 9


def test_the_winner_of_a_recordings_finals_is_the_stores_best(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    result = record(store, worker, PROBLEM, tmp_path / "out", 4, 10)
    best = store.best(PROBLEM, worker.facts.name)
    assert best is not None
    assert best.winner.measurement.config in {m.config for m in result.finals}


def test_turns_that_no_finals_take_are_refused_before_anything_is_measured(
    store: Store, worker: RecordedWorker, tmp_path: Path
) -> None:
    with pytest.raises(ProblemError, match="turns = 3"):
        record(store, worker, PROBLEM, tmp_path / "out", 4, 3)
    assert not list(store.page())


def test_what_was_right_in_screening_and_wrong_in_finals_is_recorded_as_both(
    store: Store, worker: RecordedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its replay would take the screening for a time in finals."""
    finals, wrong = RecordedRound.finals, measured(CONFIGS[0], stage="final", outcome=Outcome.WRONG_RESULT)

    def once_wrong(round_: RecordedRound, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        found = finals(round_, finalists, turns)
        return tuple(replace(wrong, policy=one.policy) if one.config == CONFIGS[0] else one for one in found)

    with monkeypatch.context() as patched:
        patched.setattr(RecordedRound, "finals", once_wrong)
        path = record(store, worker, PROBLEM, tmp_path / "out", 100, 10).path
    recorded = [one for one, _ in read_recording(path).measurements if one.config == CONFIGS[0]]
    assert [(one.stage, one.outcome) for one in recorded] == [
        ("screen", Outcome.CORRECT), ("final", Outcome.WRONG_RESULT)
    ]  # fmt: skip
    with RecordedWorker(path.parent, None) as replay:
        replayed = replay.begin(PROBLEM).finals(CONFIGS[:2], 10)
    assert {one.outcome for one in replayed if one.config == CONFIGS[0]} == {Outcome.WRONG_RESULT}


def test_what_was_right_and_another_study_found_wrong_is_not_recorded(
    store: Store, worker: RecordedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = RecordedRound.screen

    def built(round_: RecordedRound, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        return (replace(one, build_digest="b" * 64) for one in screen(round_, candidates, more))

    monkeypatch.setattr(RecordedRound, "screen", built)
    facts, by = worker.facts, worker.begin(PROBLEM).provenance
    other = store.begin_study(StudyKey(PROBLEM, facts.name, facts.kind, Policy.BURST, "sm90_wgmma", "another program"))
    wrong = replace(measured(CONFIGS[0], outcome=Outcome.WRONG_RESULT), build_digest="b" * 64)
    store.record_many(other.id, [wrong, *(measured(config) for config in CONFIGS[1:3])], by)
    path = record(store, worker, PROBLEM, tmp_path / "out", 100, 10).path
    assert {one.config for one, _ in read_recording(path).measurements} == {*CONFIGS[1:], *LIBRARY}
