"""What the benchmarks of repeatability conclude from times and winners."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks import tuned_twice
from benchmarks.repeatability import table
from benchmarks.tuned_twice import ENDS, Pair, Tune, pairs_in, summary
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROVENANCE, measured, study_key
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Ratio, StoredMeasurement
from tuner.evidence.store import Store
from workers.measurement import Policy

PROBLEM = Gemm.parse("4096x4096x4096")


def test_a_config_keeps_the_promise_where_all_its_times_lie_together() -> None:
    runs = [{"a": 100.0, "b": 100.0, "gone": 1.0}, {"a": 101.0, "b": 102.0}, {"a": 100.5, "b": 101.0}]
    lines = list(table(PROBLEM, runs))
    assert [line for line in lines if line.startswith("| `")] == [
        "| `a` | 100.00, 101.00, 100.50 | 1.00% |", "| `b` | 100.00, 102.00, 101.00 | 1.98% |"
    ]  # fmt: skip
    told = "1 of 2 configs repeat within 1.5%; the median config within 1.49%, the worst within 1.98%"
    assert lines[-2].startswith("\n" + told)
    # Right in one process and not in others: no row, but a line.
    assert lines[-1] == "- `gone` could not be built or was wrong in 2 of 3 processes."
    assert list(table(PROBLEM, runs[1:]))[-1].startswith("\n")
    assert "\nNo config was correct in every process." in table(PROBLEM, [{"a": 100.0}, {"b": 100.0}])


def test_winners_that_differ_agree_only_if_they_are_as_fast() -> None:
    one, other = FAMILY.config({"tile_n": 128}), FAMILY.config({"tile_n": 256})
    pairs = [
        Pair(PROBLEM, one, one, None, ()),
        Pair(PROBLEM, one, other, Ratio(1.009, 1.002, 1.016, True), ()),
        Pair(PROBLEM, one, other, Ratio(1.011, 0.99, 1.03, True), ()),
        Pair(PROBLEM, one, one.changed({"raster_group": 16}), Ratio(1.021, 1.02, 1.022, True), ()),
    ]
    assert [pair.tied for pair in pairs] == [True, True, False, False]
    assert [pair.alike for pair in pairs] == [True, False, False, True]
    assert "| yes | – | yes |" in pairs[0].line
    assert "| no | 1.0210 (1.0200 to 1.0220) | NO |" in pairs[3].line
    told = "the same winner, 2 the same one or one of its structure, 2 the same one or one that ties"
    assert summary(pairs).startswith(f"1 of 4 pairs of tunes named {told}")


def test_a_problem_that_fails_or_has_no_time_is_a_line_and_costs_no_other_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, now = FAMILY.config({}), [0.0]

    def both(problem: Gemm, *_: object) -> Pair:
        if problem == PROBLEM:
            raise RuntimeError("the GPU process was lost")
        now[0] = 9.0
        return Pair(problem, one, one, None, ())

    published = list[str]()
    monkeypatch.setattr(tuned_twice, "tuned_twice", both)
    monkeypatch.setattr(tuned_twice, "publish", lambda name, out, *texts, read: published.extend(texts))
    monkeypatch.setattr(tuned_twice.time, "monotonic", lambda: now[0])
    shapes = ("4096x4096x4096", "64x64x64", "128x64x64")
    monkeypatch.setattr(sys, "argv", ["x", "--seconds", "5", *(f"bf16:{shape}" for shape in shapes)])
    tuned_twice.main()
    table, said = published
    assert table.splitlines()[2:] == [Pair(Gemm.parse("64x64x64"), one, one, None, ()).line]
    assert said.startswith("1 of 1 pairs of tunes")
    assert said.splitlines()[1:3] == [
        "- bf16 nt 4096x4096x4096: RuntimeError: the GPU process was lost", "- bf16 nt 128x64x64: no time was left"
    ]  # fmt: skip
    assert "the GPU process was lost" in capsys.readouterr().out


def test_pairs_are_those_of_the_stores_that_tunes_left(tmp_path: Path) -> None:
    shapes = (Gemm(16, 4096, 4096), Gemm(32, 4096, 4096))
    one, other = FAMILY.config({"tile_n": 64}), FAMILY.config({"tile_n": 128})
    won = {(0, 0): (one, 10.0), (0, 1): (other, 12.0), (1, 0): (one, 9.0), (1, 1): (one, 9.5)}
    for (place, tune), (config, us) in won.items():
        url = f"sqlite:///{tmp_path}/{place}{tune}.db"
        with Store.open(url, create=True) as store:
            study = store.begin_study(study_key(shapes[place]))
            # Under the policy that doesn't decide here the two are equal.
            taken = [measured(config, us if policy is Policy.CHAIN else 1.0, shapes[place], "final", policy=policy)
                     for policy in (Policy.CHAIN, Policy.BURST)]  # fmt: skip
            store.set_bests(bests_of(shapes[place], store.record_many(study.id, taken, PROVENANCE), 1, {}))
            store.backup(tmp_path / f"{place}{ENDS[tune]}")
    apart, same = pairs_in(tmp_path)
    assert (apart.first, apart.second, same.first, same.versus) == (one, other, one, None)
    assert apart.versus
    assert apart.versus.value == pytest.approx(1.2)
    assert "Winners that differ are 20.00% apart at most." in summary([apart, same])


def test_ratios_of_two_tunes_are_apart_by_turn_and_by_median() -> None:
    ours, library = FAMILY.config({"tile_n": 64}), family_named("cublaslt").config({"rank": 0})
    won = measured(ours, 8.0, PROBLEM, "final", policy=Policy.CHAIN)
    (best,) = bests_of(PROBLEM, [StoredMeasurement(1, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE, won)], 1, {})

    def tuned(clock: list[float]) -> Tune:
        taken = {}
        for config, times_us in ((library, [10.0, 10.0, 10.5]), (ours, [8.0, 8.0, 8.0])):
            times = tuple(us * slow for us, slow in zip(times_us, clock, strict=True))
            taken[config.key] = replace(won, config=config, samples_us=times)
        return Tune(best, {Policy.CHAIN: taken})

    (of_ours,) = Pair.of(tuned([1.0, 1.0, 1.0]), tuned([1.0, 1.2, 1.1])).ratios
    # The clock moves the library's median to a turn in which it was slow.
    assert (of_ours.policy, of_ours.by_turn) == (Policy.CHAIN, 0)
    assert of_ours.by_median == pytest.approx(0.0476, abs=1e-3)
    lines = summary([Pair(PROBLEM, ours, ours, None, [of_ours])]).splitlines()
    assert lines[-1] == "| chain | 1 | 0.00% | 0.00% | 4.76% | 4.76% |"
