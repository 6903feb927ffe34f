"""Statistics of a measurement's samples."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.support import PROVENANCE
from workers.measurement import median_places


@pytest.mark.parametrize("count", range(6, 120))
def test_the_interval_of_the_median_is_a_95_percent_interval(count: int) -> None:
    low, high = median_places(count)
    # The median lies in it where as many samples are below the median as up to one of its ends.
    chance = sum(math.comb(count, below) for below in range(low + 1, high + 1)) / 2**count
    assert 0.945 < chance < 0.99


def test_a_provenance_of_before_there_were_rotations_keeps_its_address() -> None:
    old = replace(PROVENANCE, kernel_source_digest="")
    assert old.digest == "5285dcf87ff96b67e812c5b213dc5bac49788ff60f61564cbd15be3bfa92a294"
    assert replace(old, rotation_bytes=1).digest not in (old.digest, replace(old, seed=1).digest)
