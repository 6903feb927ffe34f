"""Statistics of a measurement's samples."""

from __future__ import annotations

import math

import pytest

from workers.measurement import median_places


@pytest.mark.parametrize("count", range(6, 120))
def test_the_interval_of_the_median_is_a_95_percent_interval(count: int) -> None:
    low, high = median_places(count)
    # The median lies in it where as many samples are below the median as up to one of its ends.
    chance = sum(math.comb(count, below) for below in range(low + 1, high + 1)) / 2**count
    assert 0.945 < chance < 0.99
