"""Ratios, intervals and picks: deterministic, and right where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from space.kinds.gemm import Gemm
from space.registry import family_named
from tuner.evidence.picks import Field, pick, standings, versus
from tuner.evidence.stats import by_turn, chance_within, median_interval_us, ratio, surely_slower
from workers.measurement import Measurement, Outcome, Policy, Verification

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("4096x4096x4096")
DEVICE = "NVIDIA H200"
CLEAN = Verification(elements=1, mismatches=0, worst_ratio=0.1, reference="test")


def measured(
    samples: list[float], family: str = "sm90_wgmma", policy: Policy = Policy.ROUNDS, **knobs: object
) -> Measurement:
    config = family_named(family).config(knobs)
    return Measurement("p", config, "final", policy, Outcome.CORRECT, tuple(samples), verification=CLEAN)


def test_drift_common_to_both_cancels_in_a_paired_ratio() -> None:
    drift = np.linspace(1.0, 2.0, 31)
    result = ratio((10 * drift).tolist(), (8 * drift).tolist())
    assert result.paired
    assert (result.value, result.low, result.high) == pytest.approx((1.25, 1.25, 1.25))


def test_a_round_that_is_slow_for_all_says_nothing_of_one() -> None:
    clock = np.array([1.0, 1.3, 1.1, 1.2, 1.0])
    shares = by_turn([(8 * clock).tolist(), (10 * clock).tolist(), (9 * clock).tolist()])
    assert np.allclose(shares, [[8 / 9] * 5, [10 / 9] * 5, [1.0] * 5])
    assert by_turn([[8.0, 9.0], [10.0]]) == [[8.0, 9.0], [10.0]]


def test_sure_is_what_nearly_every_round_says() -> None:
    noise = np.random.default_rng(5).normal(1, 0.001, 21)
    clock = np.linspace(1.0, 1.2, 21)
    assert surely_slower((100.5 * clock * noise).tolist(), (100 * clock).tolist())
    assert not surely_slower((100 * clock * noise).tolist(), (100 * clock).tolist())
    assert surely_slower([11.0, 11.1, 10.9], [10.0, 10.1])
    assert not surely_slower([10.0, 10.1, 9.9], [10.0, 10.1])


def test_samples_of_unequal_length_are_not_paired() -> None:
    assert not ratio([10.0, 10.0, 10.0], [8.0, 8.0]).paired


def test_an_interval_from_few_samples_is_as_wide_as_their_known_scatter() -> None:
    alike = ratio([10.0, 10.0], [8.0, 8.0], scatter=0.003)
    assert alike.value == 1.25
    assert (alike.low, alike.high) == pytest.approx((1.25 * (1 - 0.00588), 1.25 * (1 + 0.00588)))
    # Samples that scatter more are believed.
    apart = [10.0, 10.4], [8.0, 8.0]
    assert ratio(*apart, scatter=0.003) == ratio(*apart)
    assert surely_slower([10.05, 10.05], [10.0, 10.0])
    assert not surely_slower([10.05, 10.05], [10.0, 10.0], scatter=0.003)
    assert surely_slower([10.07, 10.07], [10.0, 10.0], scatter=0.003)
    assert not surely_slower([10.05, 10.05, 10.05], [10.0], scatter=0.003)
    single = ratio([10.0], [8.0], scatter=0.003)
    assert (single.paired, single.low) == (True, pytest.approx(1.25 * (1 - 0.00832), abs=1e-5))
    assert not ratio([10.0], [8.0]).paired


@pytest.mark.parametrize(("ours_us", "family"), [(797.0, "cublaslt"), (793.0, "sm90_wgmma")])
def test_two_blocks_that_are_a_third_of_a_percent_faster_do_not_beat_the_library(ours_us: float, family: str) -> None:
    library = measured([800.0, 800.2], family="cublaslt", policy=Policy.SUSTAINED, rank=0)
    ours = measured([ours_us, ours_us + 0.2], policy=Policy.SUSTAINED)
    assert pick([ours, library], PROBLEM, DEVICE).config.family == family
    assert versus(library, ours).low == pytest.approx(800 / ours_us * (1 - 0.00588), abs=1e-4)


def test_the_interval_of_two_blocks_is_as_wide_as_their_known_scatter() -> None:
    blocks, turns = measured([8.0, 8.001], policy=Policy.SUSTAINED), measured([8.0, 8.001])
    assert median_interval_us(turns) == (8.0, 8.001)
    assert median_interval_us(blocks) == pytest.approx((8.0005 * (1 - 0.00416), 8.0005 * (1 + 0.00416)), rel=1e-5)
    assert median_interval_us(measured([8.0, 8.2], policy=Policy.SUSTAINED)) == (8.0, 8.2)


@pytest.mark.parametrize("ahead", [64, 256])
def test_under_sustained_the_shortest_time_wins_however_near_the_next_one_is(ahead: int) -> None:
    fast = measured([800.0, 800.4], policy=Policy.SUSTAINED, tile_n=ahead)
    near = measured([801.0], policy=Policy.SUSTAINED, tile_n=320 - ahead)
    assert pick([near, fast], PROBLEM, DEVICE) is fast


def test_intervals_repeat_exactly() -> None:
    one, other = np.random.default_rng(3).normal(100, 1, (2, 30)).tolist()
    assert ratio(one, other) == ratio(one, other)
    assert ratio(one, other).low < ratio(one, other).value < ratio(one, other).high


def test_a_clear_winner_wins() -> None:
    slow, fast = measured([10.0, 10.1, 9.9], tile_n=64), measured([8.0, 8.1, 7.9], tile_n=256)
    assert pick([slow, fast], PROBLEM, DEVICE) is fast
    assert chance_within([slow.samples_us, fast.samples_us], 1, 0.02) == 1.0
    assert chance_within([slow.samples_us, fast.samples_us], 0, 0.02) == 0.0


def test_a_tie_goes_to_the_same_one_whatever_the_noise() -> None:
    first, second = measured([8.0, 8.1, 7.9], tile_n=64), measured([7.97, 8.07, 7.87], tile_n=256)
    again = measured([8.0, 8.1, 7.9], tile_n=256), measured([7.97, 8.07, 7.87], tile_n=64)
    assert pick([first, second], PROBLEM, DEVICE).config == pick(again, PROBLEM, DEVICE).config


def test_inside_the_band_half_a_percent_that_is_sure_decides() -> None:
    fast, behind = measured([8.0] * 5, tile_n=64), measured([8.1] * 5, tile_n=256)
    assert pick([fast, behind], PROBLEM, DEVICE) is fast
    assert pick([behind, fast], PROBLEM, DEVICE) is fast


def test_inside_the_band_half_a_percent_that_may_be_noise_does_not() -> None:
    noisy = measured([7.0, 7.9, 8.0, 8.1, 9.0], tile_n=64), measured([9.1, 8.1, 7.1, 8.2, 8.0], tile_n=256)
    again = measured([9.1, 8.1, 7.1, 8.2, 8.0], tile_n=64), measured([7.0, 7.9, 8.0, 8.1, 9.0], tile_n=256)
    assert pick(noisy, PROBLEM, DEVICE).config == pick(again, PROBLEM, DEVICE).config


@pytest.mark.parametrize("ahead", [64, 256])
def test_what_is_behind_in_every_round_is_behind_however_far_the_clock_moved(ahead: int) -> None:
    clock = np.linspace(1.0, 1.2, 21)
    fast, behind = measured([*(800 * clock)], tile_n=ahead), measured([*(812 * clock)], tile_n=320 - ahead)
    assert pick([fast, behind], PROBLEM, DEVICE) is fast
    assert pick([behind, fast], PROBLEM, DEVICE) is fast


def test_the_library_is_picked_unless_our_own_kernel_is_surely_faster() -> None:
    library = measured([8.0, 8.0, 8.0], family="cublaslt", rank=0)
    for ours in ([8.0, 8.0, 8.0], [7.9, 8.1, 7.9], [8.1, 8.1, 8.1]):
        assert pick([library, measured(ours)], PROBLEM, DEVICE) is library
    assert pick([measured([7.9, 7.9, 7.9]), library], PROBLEM, DEVICE).config.family == "sm90_wgmma"


def test_where_every_candidate_of_the_library_loses_somewhere_the_first_that_is_left_wins() -> None:
    chained = [measured([9.0] * 9, family="cublaslt", policy=Policy.CHAIN, rank=rank) for rank in (1, 2)]
    bursts = [measured([us] * 9, family="cublaslt", policy=Policy.BURST, rank=rank)
              for rank, us in ((0, 8.0), (1, 9.0), (2, 9.0))]  # fmt: skip
    field = Field(PROBLEM, DEVICE, [*chained, *bursts])
    assert field.winner(Policy.CHAIN) is chained[0]


def test_two_blocks_as_near_as_blocks_scatter_are_not_surely_apart() -> None:
    near, also, behind = (
        measured(samples, policy=Policy.SUSTAINED, tile_n=tile_n)
        for samples, tile_n in (([800.0, 800.4], 128), ([800.4, 800.8], 256), ([810.0], 64))
    )
    assert [one.surely for one in standings([near, also, behind])] == [False, False, True]


def test_nothing_wrong_can_win() -> None:
    wrong = Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.WRONG_RESULT)
    with pytest.raises(ValueError, match="no rival is correct"):
        pick([wrong], PROBLEM, DEVICE)


def test_a_measurement_cannot_be_correct_without_a_clean_verification() -> None:
    with pytest.raises(ValueError, match="can't be correct"):
        Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.CORRECT, (1.0,))
    dirty = Verification(elements=4, mismatches=1, worst_ratio=3.0, reference="test")
    with pytest.raises(ValueError, match="can't be correct"):
        Measurement("p", FAMILY.config({}), "screen", Policy.ROUNDS, Outcome.CORRECT, (1.0,), verification=dirty)


def test_the_chance_is_told_for_rivals_with_unequal_samples_too() -> None:
    assert chance_within([[10.0, 10.1, 9.9], [8.0, 8.1, 7.9, 8.0, 8.0]], 1, 0.02) == 1.0
