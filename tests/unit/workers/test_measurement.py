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
    assert PROVENANCE.digest == "1a8defb794ca9d7bb5b578637bcba8cbb8ebd86de6bd0492cfc862785dde13d6"
    assert replace(PROVENANCE, rotation_bytes=1).digest not in (PROVENANCE.digest, replace(PROVENANCE, seed=1).digest)
