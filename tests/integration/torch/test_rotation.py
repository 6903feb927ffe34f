"""What the benchmark of rotations compares, and how it prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks.floors import BOUNDS, measured  # noqa: E402
from benchmarks.rotation import ARMS, REGIMES, ROTATED_MB, Seen, changes, hinted, lines_of  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.support import DEVICE  # noqa: E402
from tuner.evidence.records import Best  # noqa: E402

FEW = Gemm.parse("8x6144x4096")


@pytest.mark.parametrize(
    ("problem", "family", "knobs", "streamed"),
    [
        (FEW, "sm90_wgmma", {"swap_ab": 1}, "stream_a"),
        (FEW, "sm90_wgmma", {"swap_ab": 0}, "stream_b"),
        (Gemm.parse("6144x8x4096"), "sm90_wgmma", {"swap_ab": 0}, "stream_a"),
        (FEW, "gemv", {}, "evict_first"),
    ],
)
def test_the_weights_are_what_is_marked(problem: Gemm, family: str, knobs: dict[str, int], streamed: str) -> None:
    found = hinted(problem, family_named(family).config(knobs))
    assert {arm: config["cache_hint"] for arm, config in found.items()} == {"without": "none", "evict_first": streamed}


def test_times_are_compared_with_those_in_the_largest_rotation() -> None:
    us = {(regime, megabytes, arm): 10.0 for regime in REGIMES for megabytes in ROTATED_MB for arm in ARMS}
    us["turns", ROTATED_MB[0], "evict_first"] = 9.0
    seen = Seen(FEW, us)
    in_turns, chained = lines_of(seen)
    assert in_turns.count("10.00 / 10.00 / 10.00 / 10.00") == len(ARMS) - 1
    assert in_turns.count("| 9.00 / 10.00 / 10.00 / 10.00 |") == 1
    assert chained.count("10.00 / 10.00 / 10.00 / 10.00") == len(ARMS)
    turns, chain = changes([seen, seen])
    assert turns.count("0.900 / 1.000 / 1.000 / 1.000") == 1
    assert chain.count("1.000 / 1.000 / 1.000 / 1.000") == len(ARMS)


def test_each_problem_is_timed_with_the_best_of_the_first_store_that_has_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: DEVICE)
    folders = [Path("benchmarks/stores/h200_few_rows"), Path("benchmarks/stores/h200_now")]
    asked = list[str]()

    def timed(name: str, problem: Gemm, best: Best, expected_us: float) -> Gemm:
        asked.append(name)
        if problem.dtype == "int8":
            raise RuntimeError("not here")
        assert best.problem == problem
        assert expected_us > 2
        return problem

    few = Path("benchmarks/problems/few_rows.json")
    timed_few = list(measured(few, folders, BOUNDS["memory"].holds, timed))
    assert len(asked) == len(set(asked)) == 24
    assert len(timed_few) == 24 - capsys.readouterr().out.count(": not here") < 24
    assert list(measured(few, folders, BOUNDS["arithmetic"].holds, timed)) == []


@pytest.mark.parametrize(("shape", "bound"), [("8x6144x4096", "memory"), ("8192x8192x8192", "arithmetic")])
def test_one_bound_holds_for_each_problem(shape: str, bound: str) -> None:
    problem, profile = Gemm.parse(shape), profile_named(DEVICE)
    assert [name for name, each in BOUNDS.items() if each.holds(problem, profile)] == [bound]
