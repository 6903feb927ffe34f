"""Columns cache derived columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from space.columns import Columns, IntColumn
from space.devices import profile_named
from space.kinds.gemm import Gemm
from tests.support import FAMILY

H200 = profile_named("NVIDIA H200")


def columns() -> Columns:
    return FAMILY.columns(Gemm(4096, 4096, 4096), [FAMILY.config({"tile_n": tile}) for tile in (64, 128)])


def test_what_follows_from_columns_alone_is_made_once() -> None:
    made: list[Columns] = []

    def doubled(c: Columns) -> IntColumn:
        made.append(c)
        return 2 * c["tile_n"]

    asked = columns()
    assert asked.once(doubled).tolist() == asked.once(doubled).tolist() == [128, 256]
    assert made == [asked]
    assert asked.take(np.array([1])).once(doubled).tolist() == [256]


def test_an_estimate_for_another_device_is_not_that_of_the_one_asked_before() -> None:
    asked = columns()
    faster = replace(H200, hbm_tbs=4 * H200.hbm_tbs, clock_ghz=2 * H200.clock_ghz)
    before = FAMILY.estimate_us(asked, H200)
    assert FAMILY.estimate_us(asked, faster).tolist() == FAMILY.estimate_us(columns(), faster).tolist()
    assert (FAMILY.estimate_us(asked, faster) < before).all()
