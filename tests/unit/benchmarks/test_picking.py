"""Winners of half the turns are judged by the other half, under one policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.picking import finals_of, halves, row
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FACTS, FAMILY, RECORDED_PROVENANCE, measured
from workers.measurement import Measurement, Policy
from workers.recording import file_name, write_recording

PROBLEM = Gemm.parse("16x4096x4096")


def taken(samples_us: list[float], policy: Policy = Policy.CHAIN, **knobs: object) -> Measurement:
    return replace(measured(FAMILY.config(knobs), 1.0, PROBLEM, "final", policy=policy), samples_us=tuple(samples_us))


def test_a_winner_of_one_half_is_as_far_behind_as_the_other_half_says() -> None:
    # One is 10 % faster in even turns, the other in odd ones; over all turns both are equal.
    even_first = taken([100.0, 110.0] * 6, tile_n=64)
    odd_first = taken([110.0, 100.0] * 6, tile_n=256)
    found = halves(PROBLEM, [even_first, odd_first], DEVICE)
    assert (found.long, found.same) == (True, False)
    assert found.apart == pytest.approx(0, abs=0.005)  # half of 1.1 and of 1 / 1.1, less 1
    assert found.behind == pytest.approx((0.1, 0.1))
    alike = halves(PROBLEM, [taken([50.0] * 12, tile_n=64), taken([60.0] * 12, tile_n=256)], DEVICE)
    assert (alike.long, alike.same, alike.behind) == (False, True, (0.0, 0.0))
    assert row("both", [found, alike]) == "| both | 2 | 50% | 0.23% | 0.45% | 5.00% | 10.00% |"


def test_finals_of_two_policies_are_not_mixed(tmp_path: Path) -> None:
    times = {Policy.ROUNDS: (8.0, 9.0), Policy.CHAIN: (9.0, 8.0), Policy.BURST: (7.0, 6.0)}
    finals = [
        taken([us] * 4, policy, tile_n=width)
        for policy, each in times.items() for us, width in zip(each, (64, 256), strict=True)
    ]  # fmt: skip
    write_recording(tmp_path / file_name(PROBLEM), PROBLEM, FACTS, [(one, RECORDED_PROVENANCE) for one in finals])
    ((problem, own, device),) = finals_of(tmp_path)
    assert (problem, device) == (PROBLEM, DEVICE)
    assert [(one.policy, one.median_us) for one in own] == [(Policy.CHAIN, 9.0), (Policy.CHAIN, 8.0)]


def test_a_rival_with_one_block_has_no_halves(tmp_path: Path) -> None:
    blocks = {64: [9.0, 9.1], 128: [9.5], 256: [8.0, 8.1]}
    finals = [taken(us, tile_n=width) for width, us in blocks.items()]
    write_recording(tmp_path / file_name(PROBLEM), PROBLEM, FACTS, [(one, RECORDED_PROVENANCE) for one in finals])
    ((problem, own, device),) = finals_of(tmp_path)
    assert [one.config.number("tile_n") for one in own] == [64, 256]
    assert halves(problem, own, device).same
