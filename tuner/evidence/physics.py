"""Physics: which numbers a measurement can have on any card, and which cards gemmtune knows well enough to judge them.

A time that no kernel can reach is refused where it is reported, and a stored value that no clock can have measured is
left out wherever bests are read, so it can break no page and no answer. Times of an unknown card can't be judged: they
are stored, and nothing of them is served until this version knows the card.
"""

from __future__ import annotations

import math
from typing import Final, TypeGuard

from space.devices import DeviceProfile, find_profile
from space.problem import Problem
from space.rank import roofline_us
from workers.measurement import Measurement

#: Times of one launch that a GPU's clock can have measured: a nanosecond to an hour, in microseconds.
LEAST_US: Final = 1e-3
MOST_US: Final = 3.6e9
#: Largest sample over the smallest. Workers call a tenth of it unstable; rests and throttling explain the remainder.
MOST_SPREAD: Final = 20.0
#: The roofline bound uses sustained rates: a short burst may beat it a little, never by a factor of two.
FASTEST_SHARE_OF_BOUND: Final = 0.5
#: Ratios of two times of one problem that are shown; anything else was not measured.
MOST_RATIO: Final = 1e6


def in_range(time_us: float | None) -> TypeGuard[float]:
    """Whether a clock can have measured this time; false for NaN."""
    return time_us is not None and LEAST_US <= time_us <= MOST_US


def unreadable(measurement: Measurement) -> str:
    """Why a measurement cannot be shown: a number in it is not finite, or a time not positive; empty if it can."""
    samples, clocks, check = measurement.samples_us, measurement.clocks, measurement.verification
    numbers = [*samples, measurement.product_joules or 0.0, clocks.power_w if clocks else 0.0]
    if not all(map(math.isfinite, numbers)) or (samples and min(samples) <= 0) or (check and check.worst_ratio < 0):
        return "its numbers are not finite, or its times not positive"
    return ""


def out_of_range(measurement: Measurement) -> str:
    """Why the samples of a correct measurement are no times of one kernel on any card; empty if they may be."""
    if not measurement.samples_us:
        return ""
    # Each by itself: a NaN among others is neither the least nor the most.
    wrong = [time_us for time_us in measurement.samples_us if not in_range(time_us)]
    if wrong:
        return f"a sample of {wrong[0]:g} µs: a clock measures {LEAST_US:g} to {MOST_US:g} µs"
    least, most = min(measurement.samples_us), max(measurement.samples_us)
    if most > MOST_SPREAD * least:
        return f"samples from {least:g} to {most:g} µs: more than a factor of {MOST_SPREAD:g} apart"
    return ""


def impossible(problem: Problem, profile: DeviceProfile, measurement: Measurement) -> str:
    """Why no kernel can have reached the times of a correct measurement on a card; empty if one may have."""
    if measurement.median_us < roofline_us(problem, profile) * FASTEST_SHARE_OF_BOUND:
        return (
            f"{measurement.median_us:g} µs is less than {FASTEST_SHARE_OF_BOUND:.0%} of the roofline bound: no kernel "
            f"is that fast"
        )
    return out_of_range(measurement)


def quarantined(device: str) -> str:
    """Why nothing measured on a device is served; empty if its card is known."""
    if find_profile(device) is not None:
        return ""
    return (
        f"no profile of {device[:100]!r} is known to judge its times by: its measurements are "
        f"stored, and not served until a version of gemmtune knows the card"
    )
