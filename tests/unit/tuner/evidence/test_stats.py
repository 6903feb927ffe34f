"""Ratios and intervals: deterministic, and right where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY
from tests.support import measured as about
from tuner.evidence.picks import versus
from tuner.evidence.stats import by_turn, chance_within, mean_interval, median_interval_us, ratio, scatter_of
from workers.measurement import Measurement, Policy

PROBLEM = Gemm.parse("4096x4096x4096")


def measured(samples: list[float], policy: Policy = Policy.ROUNDS) -> Measurement:
    return replace(about(FAMILY.config({}), 8.0, PROBLEM, "final", policy=policy), samples_us=tuple(samples))


def test_drift_common_to_both_cancels_in_a_paired_ratio() -> None:
    drift = np.linspace(1.0, 2.0, 31)
    result = ratio((10 * drift).tolist(), (8 * drift).tolist())
    assert result.paired
    assert (result.value, result.low, result.high) == pytest.approx((1.25, 1.25, 1.25))


def test_a_ratio_is_that_of_turns_not_of_medians_that_fall_into_different_turns() -> None:
    # One kernel is 2 % faster in every turn, but the clock's two states leave their medians 6 % apart.
    clock = np.array([1.0, 1.0, 1.0, 1.1, 1.1, 1.1])
    theirs, ours = 10 * clock, 9.8 * clock * np.array([1.0, 1.0, 1.0, 0.999, 1.001, 1.0])
    theirs[2] = 10.9
    assert float(np.median(theirs)) / float(np.median(ours)) > 1.05
    assert ratio(theirs.tolist(), ours.tolist()).value == pytest.approx(10 / 9.8, abs=1e-3)


def test_samples_of_two_runs_are_not_paired() -> None:
    clock = np.linspace(1.0, 1.2, 9)
    assert not ratio((10 * clock).tolist(), (8 * clock).tolist(), one_run=False).paired


def test_a_round_that_is_slow_for_all_says_nothing_of_one() -> None:
    clock = np.array([1.0, 1.3, 1.1, 1.2, 1.0])
    shares = by_turn([(8 * clock).tolist(), (10 * clock).tolist(), (9 * clock).tolist()])
    assert np.allclose(shares, [[8 / 9] * 5, [10 / 9] * 5, [1.0] * 5])
    assert by_turn([[8.0, 9.0], [10.0]]) == [[8.0, 9.0], [10.0]]


def test_sure_is_what_nearly_every_round_says() -> None:
    noise = np.random.default_rng(5).normal(1, 0.001, 21)
    clock = np.linspace(1.0, 1.2, 21)
    assert ratio((100.5 * clock * noise).tolist(), (100 * clock).tolist()).low > 1
    assert ratio((100 * clock * noise).tolist(), (100 * clock).tolist()).low <= 1
    assert ratio([11.0, 11.1, 10.9], [10.0, 10.1]).low > 1
    assert ratio([10.0, 10.1, 9.9], [10.0, 10.1]).low <= 1


def test_samples_of_unequal_length_are_not_paired() -> None:
    assert not ratio([10.0, 10.0, 10.0], [8.0, 8.0]).paired


def test_an_interval_from_few_samples_is_as_wide_as_their_known_scatter() -> None:
    alike = ratio([10.0, 10.0], [8.0, 8.0], scatter=0.003)
    assert alike.value == 1.25
    assert (alike.low, alike.high) == pytest.approx((1.25 * (1 - 0.00588), 1.25 * (1 + 0.00588)))
    # Samples that scatter more are believed.
    apart = [10.0, 10.4, 10.2], [8.0, 8.0, 8.0]
    assert ratio(*apart, scatter=0.003) == ratio(*apart)
    assert ratio([10.05] * 3, [10.0] * 3).low > 1
    assert ratio([10.05, 10.05], [10.0, 10.0], scatter=0.003).low <= 1
    assert ratio([10.07, 10.07], [10.0, 10.0], scatter=0.003).low > 1
    assert ratio([10.05, 10.05, 10.05], [10.0], scatter=0.003).low <= 1
    single = ratio([10.0], [8.0], scatter=0.003)
    assert (single.paired, single.low) == (True, pytest.approx(1.25 * (1 - 0.00832), abs=1e-5))
    # Nor are two of a screening turns of any finals.
    assert not ratio([10.0], [8.0]).paired
    assert not ratio([10.0, 10.0], [8.0, 8.0]).paired


def test_the_interval_of_two_blocks_is_as_wide_as_their_known_scatter() -> None:
    blocks, turns = measured([8.0, 8.001], policy=Policy.SUSTAINED), measured([8.0, 8.001])
    assert median_interval_us(turns, DEVICE) == (8.0, 8.001)
    as_known = 8.0005 * (1 - 0.00416), 8.0005 * (1 + 0.00416)
    assert median_interval_us(blocks, DEVICE) == pytest.approx(as_known, rel=1e-5)
    assert median_interval_us(measured([8.0, 8.2], policy=Policy.SUSTAINED), DEVICE) == (8.0, 8.2)


@pytest.mark.parametrize(
    ("shape", "device", "scatter"),
    [("4096x4096x4096", DEVICE, 0.003), ("1024x2048x2048", DEVICE, 0.005), ("16x4096x4096", DEVICE, 0.008),
     ("4096x4096x4096", "an unknown card", 0.008)],
)  # fmt: skip
def test_shorter_blocks_scatter_more(shape: str, device: str, scatter: float) -> None:
    key = Gemm.parse(shape).key
    block = replace(measured([8.0], policy=Policy.SUSTAINED), problem_key=key)
    assert scatter_of(Policy.SUSTAINED, key, device) == scatter
    assert scatter_of(Policy.CHAIN, key, device) == 0
    assert median_interval_us(block, device) == pytest.approx((8 * (1 - 1.96 * scatter), 8 * (1 + 1.96 * scatter)))
    assert versus(block, block, device).high == pytest.approx(1 + 1.96 * scatter * 2**0.5)


def test_the_interval_of_a_median_leaves_out_what_chance_allows() -> None:
    times = [100.0 + place for place in range(20)]
    # The median lies outside in three of a hundred series.
    assert median_interval_us(measured(times[::-1]), DEVICE) == (105.0, 115.0)


def test_intervals_repeat_exactly() -> None:
    one, other = np.random.default_rng(3).normal(100, 1, (2, 30)).tolist()
    assert ratio(one, other) == ratio(one, other)
    assert ratio(one, other).low < ratio(one, other).value < ratio(one, other).high


def test_the_chance_is_told_for_rivals_with_unequal_samples_too() -> None:
    few, many = [10.0, 10.1, 9.9], [8.0, 8.1, 7.9, 8.0, 8.0]
    assert chance_within([few, many], 1, 0.02) == 1.0
    assert chance_within([many, few], 0, 0.02) == 1.0


def test_the_chance_counts_what_is_within_the_band_turn_by_turn() -> None:
    clock = [1.0, 1.1, 1.2, 1.3, 1.4]
    fast, near, far = ([us * speed for speed in clock] for us in (100.0, 101.9, 102.1))
    assert chance_within([fast, near], 1, 0.02) == 1.0
    assert chance_within([fast, far], 1, 0.02) == 0.0


# Student's t for 95 %, as statistical tables have it.
@pytest.mark.parametrize(
    ("count", "quantile"),
    [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (6, 2.571), (7, 2.447), (8, 2.365), (9, 2.306), (10, 2.262),
     (11, 2.228), (12, 2.201), (121, 1.980)],
)  # fmt: skip
def test_the_interval_of_a_mean_is_wider_the_fewer_values_tell_their_scatter(count: int, quantile: float) -> None:
    values = np.random.default_rng(count).normal(7.0, 2.0, count)
    low, high = mean_interval(values.tolist())
    assert (low + high) / 2 == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(quantile * values.std(ddof=1) / count**0.5, rel=2e-3)
