"""Raster groups: their width, which of them a grid of tiles makes alike, and what the estimates say of both."""

from __future__ import annotations

import numpy as np
import pytest

from space.devices import profile_named
from space.families.common import group_width
from space.family import family_named
from space.kinds.gemm import Gemm

CARDS = {"sm90_wgmma": "NVIDIA H200", "mma_sync": "RTX 5090"}


def widths(across: int, *raster_groups: int) -> list[int]:
    found: list[int] = group_width(np.asarray(across), np.asarray(raster_groups)).tolist()
    return found


def test_the_number_of_groups_is_the_quotient_rounded() -> None:
    for raster_group in (1, 2, 4, 8, 12, 16):
        found = group_width(np.arange(raster_group + 1, 1000), np.asarray(raster_group))
        assert ((4 * found >= 3 * raster_group) & (2 * found < 3 * raster_group)).all()
    # 33 / 12 = 2.75 and 33 / 16 = 2.06; 20 / 12 = 1.67 and 17 / 12 = 1.42; halves are rounded up.
    assert widths(33, 1, 4, 12, 16) == [1, 5, 11, 17]
    assert [widths(across, 12) for across in (1, 5, 17, 18, 20, 29, 30)] == [[1], [5], [17], [9], [10], [15], [10]]


@pytest.mark.parametrize("family", CARDS)
@pytest.mark.parametrize("raster", ["along_m", "along_n"])
def test_only_a_group_as_wide_as_the_grid_gives_the_order_of_another(family: str, raster: str) -> None:
    plug, device = family_named(family), profile_named(CARDS[family])
    (rule,) = (each for each in plug.rules if each.id == "worth.raster_group")
    groups = [value for value in plug.knob_named["raster_group"].domain if isinstance(value, int)]
    configs = [plug.config({"raster": raster, "raster_group": group}) for group in groups]
    for across in range(1, 41):
        tall = plug.config({}).number("tile_m") * across, 8
        wide = 8, plug.config({}).number("tile_n") * across
        problem = Gemm.of(*(tall if raster == "along_m" else wide), 4096)
        kept = [group for group, keeps in zip(groups, rule.mask(plug.columns(problem, configs, device)), strict=True)
                if keeps]  # fmt: skip
        removed = [group for group in groups if group not in kept]
        assert removed == [group for group in groups if any(other >= across for other in groups if other < group)]
        assert set(widths(across, *removed)) <= set(widths(across, *kept)) & {across}


@pytest.mark.parametrize("family", CARDS)
@pytest.mark.parametrize(("raster", "shape"), [("along_m", "640x65536x256"), ("along_n", "65536x640x256")])
def test_the_estimate_is_that_of_the_width_which_a_group_has(family: str, raster: str, shape: str) -> None:
    plug, device = family_named(family), profile_named(CARDS[family])
    configs = [plug.config({"raster": raster, "raster_group": group}) for group in (2, 4, 8, 16)]
    rows = plug.columns(Gemm.parse(shape, batch=8), configs, device)
    assert (rows["tiles_m"] * rows["tiles_n"] == 5 * 512).all()
    narrow, *alike = plug.estimate_us(rows, device).tolist()
    # Five tiles make one group of four, eight or sixteen.
    assert len(set(alike)) == 1
    assert narrow > alike[0]
