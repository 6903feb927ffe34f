"""What kept finals say, where the answer is known."""

from __future__ import annotations

import pytest

from benchmarks.finals import CLASSES, Finals, blocks, energy, leaders, orders
from space.kinds.gemm import Gemm
from space.registry import family_named
from workers.cuda.regimes import order_of
from workers.measurement import Measurement, Outcome, Policy, Verification

CLEAN = Verification(elements=1, mismatches=0, worst_ratio=0.1, reference="test")
PROBLEM = Gemm.parse("4096x4096x4096")
#: By tile_n: bursts and sustained blocks of ours; the library is last.
TIMES = {64: (100.0, [112.0, 112.0]), 128: (101.0, [110.0, 110.0]), 192: (102.0, [108.0, 109.0]),
         256: (103.0, [106.0]), 0: (104.0, [104.0, 104.0])}  # fmt: skip


def taken(tile_n: int, policy: Policy, samples: list[float]) -> Measurement:
    config = family_named("sm90_wgmma").config({"tile_n": tile_n}) if tile_n else family_named("cublaslt").config({})
    joules = samples[0] * 700 / 1e6 if policy is Policy.SUSTAINED else None
    return Measurement(PROBLEM.key, config, "final", policy, Outcome.CORRECT, tuple(samples), verification=CLEAN,
                       product_joules=joules)  # fmt: skip


@pytest.fixture
def finals() -> Finals:
    by_policy: dict[Policy, dict[str, Measurement]] = {}
    for tile_n, (burst, sustained) in TIMES.items():
        turns = {Policy.BURST: [burst], Policy.CHAIN: [burst], Policy.ROUNDS: [300 - burst]}
        for policy, each in (turns | {Policy.SUSTAINED: sustained}).items():
            one = taken(tile_n, policy, each)
            by_policy.setdefault(policy, {})[one.config.key] = one
    return Finals(PROBLEM, CLASSES[0], by_policy)


def test_orders_are_compared_rival_by_rival(finals: Finals) -> None:
    assert finals.correlation(Policy.BURST) == pytest.approx(-1)
    assert finals.correlation(Policy.ROUNDS) == finals.correlation(None) == pytest.approx(1)
    assert "| power decides | 1 | -1.00 | -1.00 | 1.00 | 1.00 |" in [*orders([finals])]


def test_fewer_leaders_cost_what_their_best_is_behind(finals: Finals) -> None:
    losses = [finals.loss(*few) for few in ((1, 1), (1, 4), (3, 3))]
    assert losses == pytest.approx([112 / 106 - 1, 0, 108.5 / 106 - 1])
    assert "| 3 | 4 | 0.000% | 0.00% |  |  |" in [*leaders([finals])]
    # Where `chain` decides, whose order is that by bursts here, the first is the best.
    assert Finals(finals.problem, CLASSES[1], finals.by_policy).loss(1, 1) == 0


def test_blocks_are_compared_by_place_and_a_single_one_is_not(finals: Finals) -> None:
    ratios = {1.0, 108 / 109}
    assert {ratio for _, ratio in finals.places()} == ratios
    places = {place: number for place, number in enumerate(order_of(0, 5))}
    assert {place for place, _ in finals.places()} == {place for place, number in places.items() if number != 3}
    assert "| power decides | 4 | 0.33% |" in [*blocks([finals])]


def test_energy_is_that_of_the_fastest(finals: Finals) -> None:
    (said,) = energy([finals])
    assert "5 rivals: 700 W (median)" in said
    assert f"takes {106 * 700 / PROBLEM.flops * 1e6:.3f} pJ a flop (median of 1)" in said
