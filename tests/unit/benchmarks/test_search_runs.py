"""Runs of the search benchmark are planned, kept, named when they fail and told of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.child import End, end_of
from benchmarks.search.replay import Replay
from benchmarks.search.report import Curves, by_problem
from benchmarks.search.runs import Ended, keep, kept, units_of, wanted
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import STRATEGIES
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY

SHAPES = ("4096x4096x4096", "8192x8192x8192", "128x28672x4096")


def replay(shape: str, fastest_us: float = 1.0) -> Replay:
    configs = tuple(FAMILY.config({"tile_n": tile}) for tile in (64, 128))
    return Replay(Gemm.parse(shape), DEVICE, configs, np.array([fastest_us, 2.0]))


@pytest.fixture
def setting() -> Setting:
    return Setting([replay(shape) for shape in SHAPES], FAMILY, model_seeds=2)


def test_every_strategy_runs_with_as_many_seeds_as_it_has_a_use_for(setting: Setting) -> None:
    asked = wanted(setting, ["guided", "analytic order", "random"], [0, 2], seeds=5, most=9)
    counts = {name: sum(run.name == name for run in asked) for name in {run.name for run in asked}}
    assert counts == {"guided": 4, "analytic order": 2, "random": 10}
    assert len({run.key for run in asked}) == len(asked)


def test_runs_that_may_learn_from_the_same_problems_are_done_together(setting: Setting) -> None:
    names = ["guided", "learned order", "guided, class left out", "random"]
    units = units_of(wanted(setting, names, [0, 1], seeds=2, most=9), setting)
    told = [({run.name for run in unit}, {run.place for run in unit}) for unit in units]
    assert ({"guided", "learned order"}, {0}) in told
    # Both are square: one model is without either.
    assert ({"guided, class left out"}, {0, 1}) in told
    assert len(units) == 5


def test_a_run_is_kept_until_what_it_was_taught_changes(setting: Setting, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    asked = wanted(setting, ["guided", "random"], [0], seeds=1, most=9)
    for run in asked:
        keep(path, Ended(run, End([1, 0], 0.1)))
    with path.open("a") as file:
        file.write('{"key": ["guided", "cut off')
    assert kept(path) == {run.key: [1, 0] for run in asked}
    other = Setting([setting.replays[0], replay(SHAPES[1], 1.5), setting.replays[2]], FAMILY, model_seeds=2)
    again = wanted(other, ["guided", "random"], [0], seeds=1, most=9)
    assert [run.name for run in again if run.key not in kept(path)] == ["guided"]


def test_a_run_that_fails_says_why_and_the_next_one_goes_on(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[int]:
        raise ImportError("no module named rival")

    monkeypatch.setitem(STRATEGIES, "DeepGEMM's rule", broken)
    failed, well = (end_of((name, 0, 0), setting, 9) for name in ("DeepGEMM's rule", "random"))
    assert failed.failure == "ImportError: no module named rival"
    assert not well.failure
    assert sorted(well.order) == [0, 1]


def test_the_table_by_problem_names_the_measurements_that_it_is_after() -> None:
    curves = {"random": {"square": Curves(np.array([[0.5, 0.75]]))}}
    head, _, _, _, row = by_problem(curves, ["random"], 2).splitlines()
    assert head == "After 2 measurements, by problem:"
    assert row == "| square | 0.750 |"
