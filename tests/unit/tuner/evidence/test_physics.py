"""Numbers that a measurement can't have, each by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from space.devices import profile_named
from space.rank import roofline_us
from tests.support import DEVICE, FAMILY, PROBLEM, measured
from tuner.evidence.physics import (
    FASTEST_SHARE_OF_BOUND,
    LEAST_US,
    MOST_SPREAD,
    MOST_US,
    impossible,
    in_range,
    out_of_range,
    quarantined,
    unreadable,
)
from workers.measurement import Clocks, Measurement, Outcome

GOOD = measured(FAMILY.config({}), 100.0, PROBLEM, "final", samples=3)


def with_(**changed: Any) -> Measurement:  # noqa: ANN401
    return replace(GOOD, **changed)


@pytest.mark.parametrize(("time_us", "within"), [
    (LEAST_US, True), (MOST_US, True), (LEAST_US * 0.99, False), (MOST_US * 1.01, False), (0.0, False), (-1.0, False),
    (math.nan, False), (math.inf, False), (None, False),
])  # fmt: skip
def test_a_clock_measures_a_nanosecond_to_an_hour(time_us: float | None, within: bool) -> None:
    assert in_range(time_us) is within


def check(worst: float) -> Any:  # noqa: ANN401
    assert GOOD.verification is not None
    return replace(GOOD.verification, worst_ratio=worst)


def clocks(power_w: float) -> Clocks:
    return Clocks(1_500, 2_600, power_w, 50)


@pytest.mark.parametrize("changed", [
    {"samples_us": (1.0, math.nan, 1.0)}, {"samples_us": (1.0, math.inf)}, {"samples_us": (1.0, 0.0)},
    {"samples_us": (1.0, -1.0)}, {"product_joules": math.nan}, {"product_joules": math.inf},
    {"clocks": clocks(math.nan)}, {"clocks": clocks(math.inf)}, {"verification": check(-0.5)},
], ids=str)  # fmt: skip
def test_a_number_that_is_not_finite_or_a_time_that_is_not_positive_is_not_shown(changed: dict[str, Any]) -> None:
    assert unreadable(with_(**changed)) == "its numbers are not finite, or its times not positive"


@pytest.mark.parametrize("changed", [
    {}, {"product_joules": 0.5}, {"clocks": clocks(700.0)}, {"clocks": None}, {"product_joules": None},
    {"verification": check(0.0)}, {"outcome": Outcome.TIMEOUT, "verification": None, "samples_us": ()},
], ids=str)  # fmt: skip
def test_what_may_be_missing_or_zero_is_shown(changed: dict[str, Any]) -> None:
    assert unreadable(with_(**changed)) == ""


@pytest.mark.parametrize(("samples", "said"), [
    ((1.0, MOST_SPREAD), ""), ((1.0, MOST_SPREAD * 1.01), "more than a factor of 20 apart"),
    ((1.0, math.nan, 1.0), "a sample of nan µs: a clock measures"),
    ((LEAST_US / 2, LEAST_US), "a clock measures"), ((MOST_US / 2, MOST_US * 2), "a clock measures"),
])  # fmt: skip
def test_samples_are_times_of_one_kernel(samples: tuple[float, ...], said: str) -> None:
    found = out_of_range(with_(samples_us=samples))
    assert said in found if said else found == ""
    assert out_of_range(with_(outcome=Outcome.TIMEOUT, samples_us=())) == ""


def test_no_kernel_is_twice_as_fast_as_the_roofline() -> None:
    h200 = profile_named(DEVICE)
    bound = roofline_us(PROBLEM, h200) * FASTEST_SHARE_OF_BOUND
    assert impossible(PROBLEM, h200, with_(samples_us=(bound * 1.01,))) == ""
    assert "no kernel is that fast" in impossible(PROBLEM, h200, with_(samples_us=(bound * 0.99,)))
    assert "apart" in impossible(PROBLEM, h200, with_(samples_us=(100.0, 100.0, 100.0 * 21)))


def test_times_of_a_card_that_is_not_known_are_not_served() -> None:
    assert quarantined(DEVICE) == quarantined("NVIDIA H200 (500 W)") == ""
    assert "is known to judge its times by" in quarantined("NVIDIA H300 Imaginary")
