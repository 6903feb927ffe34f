"""Legal rules that families share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from space.explain import explain
from space.families.common import MOST_UNSIGNED_K
from space.family import family_named
from space.kinds.gemm import Gemm


@pytest.mark.parametrize("family", ["sm90_wgmma", "mma_sync", "gemv"])
@pytest.mark.parametrize(
    ("dtypes", "epilogue", "refused"),
    [
        ("uint8,uint8,int8,s32", "none", True),
        ("uint8,uint8,int8,s32", "beta+bias+relu", True),
        ("uint8,uint8,fp8_e4m3,s32", "none", True),
        ("uint8,uint8,fp16,s32", "none", True),
        ("uint8,uint8,int8,s32", "alpha+bias", False),
        ("uint8,uint8,bf16,s32", "none", False),
        ("uint8,uint8,s32,s32", "none", False),
        ("uint8,int8,int8,s32", "none", False),
        ("int8,int8,int8,s32", "none", False),
    ],
)
def test_a_c_that_is_at_the_end_of_its_range_everywhere_is_refused(
    family: str, dtypes: str, epilogue: str, refused: bool
) -> None:
    plug, problem = family_named(family), Gemm.of(1, 256, 4096, dtypes, epilogue=epilogue)
    told = [one.numbers for one in explain(plug, problem, plug.config({})).broken if one.rule == "sums.range"]
    why = f"C is {problem.dtype_c} and would be at the end of its range everywhere; add alpha, or use s32"
    assert told == ([why] if refused else [])


@pytest.mark.parametrize("family", ["sm90_wgmma", "mma_sync", "gemv"])
@pytest.mark.parametrize(("dtypes", "refused"), [("uint8,uint8,s32,s32", True), ("uint8,uint8,int8,s32", True),
                                                 ("int8,int8,s32,s32", False)])  # fmt: skip
def test_sums_that_wrap_around_are_refused(family: str, dtypes: str, refused: bool) -> None:
    plug = family_named(family)
    for k, beyond in ((MOST_UNSIGNED_K, False), (MOST_UNSIGNED_K + 1, True)):
        explained = explain(plug, Gemm.of(1, 256, k, dtypes, epilogue="alpha"), plug.config({}))
        told = [one.numbers for one in explained.broken if one.rule == "sums.range"]
        assert told == (["K = 129,025 > 129,024: add up slices of K"] if refused and beyond else [])


def test_the_longest_sums_of_unsigned_products_stay_within_32_bits() -> None:
    products = np.multiply.outer(np.arange(256.0), np.arange(256.0))
    assert MOST_UNSIGNED_K * products.mean() + 8 * math.sqrt(MOST_UNSIGNED_K) * products.std() < 2**31


@pytest.mark.parametrize("family", ["sm90_wgmma", "mma_sync", "gemv"])
def test_counts_of_a_problem_that_fits_no_gpu_do_not_wrap_around(family: str) -> None:
    plug, most = family_named(family), 2**31 - 1
    explained = explain(plug, Gemm(most, most, 2**20, batch=most), plug.config({"split_k": 32}))
    assert min(explained.derived.values()) >= 0
    (told,) = (one.numbers for one in explained.broken if one.rule == "split.workspace")
    assert int(told.split(" B > ")[0].replace(",", "")) >= 2**50


def test_shared_tiles_of_a_problem_that_fits_no_gpu_are_counted() -> None:
    plug, most = family_named("mma_sync"), 2**31 - 1
    derived = plug.derive(Gemm(most, most, 2**20, batch=most), plug.config({"stream_k": 1}))
    assert 0 < derived["shared_tiles"] < 2 * plug.reference.sm_count


@pytest.mark.parametrize("family", ["sm90_wgmma", "mma_sync"])
@pytest.mark.parametrize("long", ["m", "n"])
def test_a_c_whose_last_tile_is_beyond_32_bits_is_refused(family: str, long: str) -> None:
    plug, within = family_named(family), 2**31 - 2048
    short = Gemm.of(64, 64, 64)
    told = [
        {one.rule: one.numbers for one in explain(plug, replace(short, **{long: most}), plug.config({})).broken}
        for most in (within, within + 1)
    ]
    assert "grid.edge" not in told[0]
    assert told[1]["grid.edge"] == "2,147,481,601 rows or columns > 2,147,481,600: multiply parts of C"
