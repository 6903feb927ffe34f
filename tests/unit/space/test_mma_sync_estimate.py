"""The estimate of `mma_sync` for lines that are no multiples of 16 bytes."""

from __future__ import annotations

import pytest

from space.devices import profile_named
from space.family import family_named
from space.kinds.gemm import Gemm

FAMILY = family_named("mma_sync")
H200 = profile_named("NVIDIA H200")


def estimate(problem: Gemm, **knobs: object) -> float:
    return float(FAMILY.estimate_us(FAMILY.columns(problem, [FAMILY.config(knobs)], H200), H200)[0])


@pytest.mark.parametrize("knobs", [{"tile_m": 64, "tile_n": 64, "stages": 4}, {"tile_m": 128, "tile_n": 128}])
def test_narrower_copies_take_longer(knobs: dict[str, object]) -> None:
    """16, 8, 4 and 2 bytes; the last pass through registers, and the loads of each step wait there."""
    wide, eight, four, two = (estimate(Gemm.of(256, 4096, k), **knobs) for k in (8192, 8196, 8194, 8193))
    assert wide < eight < four < two
    assert 1.5 * wide < two < 6 * wide


def test_only_what_lies_narrow_takes_longer() -> None:
    """tt: lines of A are M long, those of B are K long. Few of a tile's rows are A's."""
    knobs = {"tile_m": 16, "tile_n": 128, "warps_m": 1, "warps_n": 4}
    wide, narrow_a, narrow_b = (estimate(Gemm.of(m, 8192, k, layout="tt"), **knobs)
                                for m, k in ((16, 4096), (18, 4096), (16, 4098)))  # fmt: skip
    assert narrow_b - wide > 2 * (narrow_a - wide) > 0


def test_swapped_tiles_copy_the_same() -> None:
    problem = Gemm.of(16, 8192, 4098)
    few = estimate(problem, tile_m=16, tile_n=128, warps_m=1, warps_n=4)
    swapped = estimate(problem, swap_ab=1, tile_m=128, tile_n=16, warps_m=4, warps_n=1)
    assert few == pytest.approx(swapped, rel=0.05)
