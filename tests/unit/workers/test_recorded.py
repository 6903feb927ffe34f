"""The recorded device: full speed or real time, failures and the library included."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import FACTS, FAMILY, PROBLEM, PROVENANCE, measured
from workers import recorded
from workers.build import Build, BuildFailure
from workers.errors import RecordingError
from workers.measurement import RECORDED_SCREENING, Measurement, Outcome, Policy, Stage
from workers.recorded import MAX_SECONDS, USUAL_SECONDS, RecordedWorker, seconds_taken
from workers.recording import file_name, read_recording, write_recording
from workers.replays import Sources

CONFIGS = [FAMILY.config({"tile_n": n}) for n in (64, 72, 80, 88)]
LIBRARY = [family_named("cublaslt").config({"rank": rank}) for rank in (0, 1)]
#: Seconds between one measurement and the next; the third was behind a night's pause.
GAPS = [0.0, 0.5, 3600.0, 0.25, 0.125, 0.25]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    outcomes = [Outcome.CORRECT, Outcome.TIMEOUT, Outcome.CORRECT, Outcome.WRONG_RESULT]
    rows = [measured(config, outcome=outcome) for config, outcome in zip(CONFIGS, outcomes, strict=True)]
    rows += [measured(config) for config in LIBRARY]
    moment, moments = datetime(2026, 1, 1, tzinfo=UTC), []
    for gap in GAPS:
        moment += timedelta(seconds=gap)
        moments.append(moment)
    write_recording(tmp_path / "h200" / file_name(PROBLEM), PROBLEM, FACTS, [(m, PROVENANCE) for m in rows], moments)
    return tmp_path / "h200"


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, real_time: bool) -> tuple[RecordedWorker, list[float]]:
    slept: list[float] = []
    monkeypatch.setattr(recorded.time, "sleep", slept.append)
    worker = RecordedWorker(folder, None, real_time)
    monkeypatch.setattr(worker._builder, "_compile", lambda *_: Build("", b"", 0, (), "", 0.0))
    return worker, slept


def test_seconds_are_those_since_the_measurement_before(folder: Path) -> None:
    taken = seconds_taken(read_recording(folder / file_name(PROBLEM)))
    usual = 0.25
    assert taken == [usual, 0.5, usual, 0.25, 0.125, 0.25]


def test_what_was_kept_together_shares_its_time(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(seconds=seconds) for seconds in (0, 0.5, 0.5, 0.75)]
    rows = [(measured(config), PROVENANCE) for config in CONFIGS]
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, rows, moments)
    assert seconds_taken(read_recording(tmp_path / "r.parquet")) == [0.25, 0.25, 0.25, 0.25]


def test_many_that_were_kept_together_may_take_as_long_as_each_may(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start, *[start + timedelta(seconds=3 * MAX_SECONDS)] * 3]
    rows = [(measured(config), PROVENANCE) for config in CONFIGS]
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, rows, moments)
    assert seconds_taken(read_recording(tmp_path / "r.parquet")) == [MAX_SECONDS] * 4


def test_folders_that_differ_in_one_problem_are_two_devices(folder: Path) -> None:
    before = RecordedWorker(folder, None, compiles=False).facts.uuid
    more = Gemm.parse("8192x8192x8192")
    rows = [(measured(config, problem=more), PROVENANCE) for config in CONFIGS]
    write_recording(folder / file_name(more), more, FACTS, rows)
    assert RecordedWorker(folder, None, compiles=False).facts.uuid != before


def test_a_recording_of_finals_alone_is_opened(tmp_path: Path) -> None:
    finals = [(measured(config, stage="final"), PROVENANCE) for config in CONFIGS]
    write_recording(tmp_path / file_name(PROBLEM), PROBLEM, FACTS, finals)
    worker = RecordedWorker(tmp_path, None, False)
    assert worker.facts.screening is RECORDED_SCREENING
    # A final alone can't be replayed as a candidate.
    assert worker.measurable(PROBLEM) == frozenset()


def test_an_old_recording_takes_what_is_usual(tmp_path: Path) -> None:
    write_recording(tmp_path / "r.parquet", PROBLEM, FACTS, [(measured(config), PROVENANCE) for config in CONFIGS])
    assert seconds_taken(read_recording(tmp_path / "r.parquet")) == [USUAL_SECONDS] * 4


def test_real_time_passes_what_each_candidate_took(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, slept = opened(folder, monkeypatch, real_time=True)
    with worker:
        round_ = worker.begin(PROBLEM)
        measured_again = list(round_.screen(CONFIGS))
        assert sorted(slept) == sorted([0.25, 0.5, 0.25, 0.25])
        round_.finals(CONFIGS[:2], 5)
    assert slept[len(CONFIGS) :] == [2 * USUAL_SECONDS]
    assert {m.config: m.outcome for m in measured_again} == dict(
        zip(CONFIGS, [Outcome.CORRECT, Outcome.TIMEOUT, Outcome.CORRECT, Outcome.WRONG_RESULT], strict=True)
    )


def test_a_candidate_that_does_not_compile_here_has_no_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _ = opened(folder, monkeypatch, real_time=False)
    monkeypatch.setattr(worker._builder, "_compile", lambda *_: BuildFailure("expected a semicolon", ""))
    with worker:
        (failed,) = worker.begin(PROBLEM).screen(CONFIGS[:1])
    assert (failed.outcome, failed.detail) == (Outcome.COMPILE, "expected a semicolon")
    assert (failed.samples_us, failed.clocks, failed.verification) == ((), None, None)


def test_full_speed_sleeps_never(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, slept = opened(folder, monkeypatch, real_time=False)
    with worker:
        list(worker.begin(PROBLEM).screen(CONFIGS))
    assert slept == []


def test_the_librarys_candidates_are_replayed_and_are_not_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _ = opened(folder, monkeypatch, real_time=False)
    with worker:
        round_ = worker.begin(PROBLEM)
        assert list(round_.baselines) == LIBRARY
        assert [m.config for m in round_.screen(LIBRARY)] == LIBRARY
        assert worker.measurable(PROBLEM) == {config.key for config in CONFIGS}


def test_stages_are_kept_apart(folder: Path) -> None:
    stages: set[Stage] = {m.stage for m, _ in read_recording(folder / file_name(PROBLEM)).measurements}
    assert stages == {"screen"}
    assert all(isinstance(m, Measurement) for m, _ in read_recording(folder / file_name(PROBLEM)).measurements)


def test_a_finalist_that_was_only_screened_is_told_as_finals_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screened = zip(CONFIGS, (100.0, 110.0, 90.0, 100.0), strict=True)
    rows = [measured(config, us) for config, us in screened]
    found = zip((*CONFIGS[:2], CONFIGS[3]), (105.0, 121.0, 150.0), strict=True)
    rows += [measured(config, us, stage="final") for config, us in found]
    rows += [measured(LIBRARY[0], 120.0, stage="final")]
    write_recording(tmp_path / "h200" / file_name(PROBLEM), PROBLEM, FACTS, [(row, PROVENANCE) for row in rows])
    worker, _ = opened(tmp_path / "h200", monkeypatch, real_time=False)
    ours, lucky, library = worker.begin(PROBLEM).finals([CONFIGS[0], CONFIGS[2]], 5)
    assert (ours.median_us, library.median_us) == (105.0, 120.0)
    # In finals the three others took 5, 10 and, once, 50 % longer than in screening.
    assert (lucky.stage, lucky.median_us) == ("final", pytest.approx(90.0 * 1.1, rel=2e-3))
    # No finals have so few samples: none of its ratios is paired with theirs.
    assert len(lucky.samples_us) == 2 < min(len(ours.samples_us), len(library.samples_us))
    assert "screened only" in lucky.note


LARGE = Gemm.parse("4096x4096x4096")


def raster(tile_n: int, group: int) -> Config:
    return FAMILY.config({"tile_n": tile_n, "raster_group": group, "stages": 3})


def replayed_finals(
    folder: Path, monkeypatch: pytest.MonkeyPatch, problem: Gemm, finalists: list[Config]
) -> list[Measurement]:
    """Under `sustained`, of a recording that measured rasters 2 and 8 of two tiles in full, and screened 1 too."""
    configs = [raster(tile_n, group) for tile_n in (64, 128) for group in (1, 2, 8)]
    rows = [measured(config, 100.0, problem, policy=RECORDED_SCREENING) for config in configs]
    in_full = [*(raster(tile_n, group) for group in (8, 2) for tile_n in (64, 128)), LIBRARY[0]]
    rows += [measured(config, 100.0, problem, "final", policy=Policy.SUSTAINED) for config in in_full]
    write_recording(folder / "h200" / file_name(problem), problem, FACTS, [(row, PROVENANCE) for row in rows])
    worker, _ = opened(folder / "h200", monkeypatch, real_time=False)
    return [one for one in worker.begin(problem).finals(finalists, 5) if one.policy is Policy.SUSTAINED]


@pytest.mark.parametrize("finalists", [
    [raster(128, 2)], [raster(128, 1)], [raster(128, 8), raster(128, 1)], [raster(128, 1), raster(128, 8)],
])  # fmt: skip
def test_where_power_decides_all_of_a_finalists_structure_that_were_timed_in_full_take_part(
    finalists: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *ours, library = replayed_finals(tmp_path, monkeypatch, LARGE, finalists)
    # In the recording's order: so its pick is the recording's.
    assert [one.config for one in ours] == [raster(128, 8), raster(128, 2)]
    assert library.config == LIBRARY[0]
    for one in ours:
        assert ("not chosen by this search" in one.note) == (one.config not in finalists)


def test_what_a_newer_rule_forbids_takes_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "legal_among", lambda problem, configs, device: {raster(128, 2)} & set(configs))
    ours, library = replayed_finals(tmp_path, monkeypatch, LARGE, [raster(128, 2)])
    assert (ours.config, library.config) == (raster(128, 2), LIBRARY[0])


def test_a_finalist_stands_for_itself_where_rules_forbid_all_of_its_structure_that_were_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = {raster(128, group) for group in (2, 8)}
    monkeypatch.setattr(recorded, "legal_among", lambda problem, configs, device: {*configs} - forbidden)
    replayed_finals(tmp_path, monkeypatch, LARGE, [])
    worker, _ = opened(tmp_path / "h200", monkeypatch, real_time=False)
    found = worker.begin(LARGE).finals([raster(128, 1)], 5)
    assert [(one.config, one.policy) for one in found if one.config != LIBRARY[0]] == [
        (raster(128, 1), RECORDED_SCREENING)
    ]  # fmt: skip


def test_a_finalist_stands_for_itself_where_all_of_its_structure_that_were_timed_were_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalist, wrong = raster(128, 1), raster(128, 2)
    rows = [measured(one, 100.0, LARGE, policy=RECORDED_SCREENING) for one in (finalist, wrong)]
    rows.append(measured(wrong, 100.0, LARGE, "final", Outcome.WRONG_RESULT, policy=Policy.SUSTAINED))
    write_recording(tmp_path / "h200" / file_name(LARGE), LARGE, FACTS, [(row, PROVENANCE) for row in rows])
    worker, _ = opened(tmp_path / "h200", monkeypatch, real_time=False)
    assert [one.config for one in worker.begin(LARGE).finals([finalist], 5)] == [finalist]


def test_failed_finals_say_nothing_of_how_much_longer_finals_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [measured(config, 100.0) for config in CONFIGS[:3]]
    rows += [measured(config, stage="final", outcome=Outcome.WRONG_RESULT) for config in CONFIGS[:2]]
    write_recording(tmp_path / "h200" / file_name(PROBLEM), PROBLEM, FACTS, [(row, PROVENANCE) for row in rows])
    worker, _ = opened(tmp_path / "h200", monkeypatch, real_time=False)
    (lucky,) = worker.begin(PROBLEM).finals([CONFIGS[2]], 5)
    assert lucky.median_us == pytest.approx(100.0, rel=2e-3)


def test_all_of_a_structure_take_part_under_every_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The finalist has bursts, and was too slow by these to be timed further; its early twin was timed among others.
    slow, fast, early = raster(128, 1), raster(128, 8), raster(128, 8).changed({"pdl": 1})
    rows = [measured(one, 100.0, LARGE, "final", policy=policy) for one, policy in (
        (slow, Policy.BURST), (fast, Policy.BURST), (fast, Policy.SUSTAINED), (early, Policy.CHAIN_PDL),
    )]  # fmt: skip
    rows += [measured(one, 100.0, LARGE, policy=RECORDED_SCREENING) for one in (slow, fast)]
    write_recording(tmp_path / "h200" / file_name(LARGE), LARGE, FACTS, [(row, PROVENANCE) for row in rows])
    worker, _ = opened(tmp_path / "h200", monkeypatch, real_time=False)
    replayed = worker.begin(LARGE).finals([slow], 5)
    assert {(one.policy, one.config) for one in replayed} >= {
        (Policy.BURST, slow), (Policy.BURST, fast), (Policy.SUSTAINED, fast), (Policy.CHAIN_PDL, early),
    }  # fmt: skip
    assert [one.config for one in replayed if one.policy is Policy.SUSTAINED] == [fast]


def test_elsewhere_nothing_stands_for_a_finalist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = replayed_finals(tmp_path, monkeypatch, PROBLEM, [raster(128, 1), raster(64, 2)])
    assert [one.config for one in replayed] == [raster(64, 2), LIBRARY[0]]


def test_a_replay_with_another_kernel_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "sources_here", lambda problem, arch: Sources("b" * 64, frozenset()))
    worker, _ = opened(folder, monkeypatch, real_time=False)
    with worker:
        round_ = worker.begin(PROBLEM)
        (ours,), (theirs,) = round_.screen(CONFIGS[:1]), round_.screen(LIBRARY[:1])
        (final,) = round_.finals(CONFIGS[:1], 5)
    assert round_.provenance.kernel_source_digest == PROVENANCE.kernel_source_digest
    when = "replayed: a GPU measured this on 2026-01-01 at 00:00 UTC"
    then = PROVENANCE.kernel_source_digest[:12]
    words = f"{when} with kernel source {then}, which was bbbbbbbbbbbb when it was replayed"
    assert ours.note == words
    assert final.note.startswith(f"{words}; screened only")
    assert theirs.note == "replayed: a GPU measured this on 2026-01-01 at 01:00 UTC"


def test_a_replay_with_the_same_kernel_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = PROVENANCE.kernel_source_digest
    monkeypatch.setattr(recorded, "sources_here", lambda problem, arch: Sources(then, frozenset({then})))
    worker, _ = opened(folder, monkeypatch, real_time=False)
    with worker:
        notes = [one.note for one in worker.begin(PROBLEM).screen(CONFIGS)]
    assert all(note.endswith(", the same as when it was replayed") for note in notes)


def test_what_another_device_or_another_problem_took_is_no_recording_of_this_one(tmp_path: Path) -> None:
    other, renamed = Gemm.parse("512x256x256"), Gemm.parse("768x256x256")
    rows = [(measured(FAMILY.config({})), PROVENANCE)]
    write_recording(tmp_path / file_name(PROBLEM), PROBLEM, FACTS, rows)
    elsewhere = replace(FACTS, name="NVIDIA H100 80GB HBM3")
    others = [(measured(FAMILY.config({}), problem=other), PROVENANCE)]
    write_recording(tmp_path / file_name(other), other, elsewhere, others)
    write_recording(tmp_path / file_name(renamed), PROBLEM, FACTS, rows)
    with RecordedWorker(tmp_path, None) as worker:
        assert worker.begin(PROBLEM).provenance == PROVENANCE
        with pytest.raises(RecordingError, match=r"was taken on NVIDIA H100 80GB HBM3.* give each device a folder"):
            worker.begin(other)
        with pytest.raises(RecordingError, match="is a recording of bf16 nt 256x256x256: name it"):
            worker.measurable(renamed)
