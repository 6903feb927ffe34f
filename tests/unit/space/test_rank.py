"""The ranking is that of every row's estimate, however few of the rows it is computed for."""

from __future__ import annotations

import numpy as np
import pytest

from space.devices import profile_named
from space.enumerate import Space, enumerate_space
from space.families.common import MAX_TILES
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import at_power_limit_us, distinct, may_reach_power_limit, power_decides, rank, roofline_us

H200 = profile_named("NVIDIA H200")

#: Operands that lie along K and others: of these the estimate reads swizzles too.
SPACES = [
    ("sm90_wgmma", "96x40x256", "bf16", "nt"),
    ("sm90_wgmma", "300x1000x776", "bf16", "tn"),
    ("sm90_wgmma", "64x80x256", "fp8_e4m3_promoted", "nt"),
    ("gemv", "2x8192x512", "bf16", "nt"),
]


def space_of(family: str, shape: str, dtype: str, layout: str) -> Space:
    return enumerate_space(family_named(family), Gemm.parse(shape, dtype, layout), without=("worth.pdl",))


@pytest.mark.parametrize("case", SPACES)
def test_it_is_the_order_of_estimates_and_ties_keep_the_order_of_rows(case: tuple[str, str, str, str]) -> None:
    space = space_of(*case)
    estimates = space.family.estimate_us(space.columns, H200)
    ranked = rank(space, H200)
    assert len(np.unique(estimates)) < len(space)
    assert ranked.order.tolist() == np.argsort(estimates, kind="stable").tolist()
    assert ranked.estimates_us.tolist() == np.sort(estimates).tolist()
    near = rank(space, H200, within=1.1)
    assert near.order.tolist() == ranked.order[: np.count_nonzero(estimates <= 1.1 * estimates.min())].tolist()


def test_nothing_legal_has_no_ranking() -> None:
    family, problem = family_named("gemv"), Gemm.parse("4096x4096x4096")
    assert len(rank(enumerate_space(family, problem), H200, within=1.1)) == 0


@pytest.mark.parametrize(("family", "device"), [("sm90_wgmma", "NVIDIA H200"), ("mma_sync", "NVIDIA L4")])
def test_what_no_gpu_holds_is_ranked_too(family: str, device: str) -> None:
    # Nearly 2^67 bytes of A.
    problem, profile = Gemm.of(64, 1, 2**29 - 4, "tf32", batch=MAX_TILES), profile_named(device)
    ranked = rank(enumerate_space(family_named(family), problem, profile), profile)
    assert len(ranked)
    assert np.isfinite(ranked.estimates_us).all()


@pytest.mark.parametrize(
    ("shape", "may", "decides"),
    [
        ("4096x4096x4096", True, True),
        ("1024x1024x1024", True, False),  # 3 µs
        ("16x65536x4096", False, False),  # 120 µs of memory's time
    ],
)
def test_power_decides_long_products_that_arithmetic_bounds(shape: str, may: bool, decides: bool) -> None:
    problem = Gemm.parse(shape)
    assert (may_reach_power_limit(problem, H200), power_decides(problem, H200)) == (may, decides)


def test_at_the_power_limit_a_config_pays_for_what_it_loads() -> None:
    tiles = family_named("sm90_wgmma")
    small, large = (tiles.config({"tile_m": tile_m, "tile_n": 256}) for tile_m in (64, 256))
    paid = at_power_limit_us(small, 10.0) / at_power_limit_us(large, 10.0)
    assert paid == pytest.approx((1 + 15 / 256) / (1 + 6 / 256))
    # A family without tiles loads what it loads.
    assert at_power_limit_us(family_named("gemv").config({}), 10.0) == 10.0


def test_rows_that_agree_are_one_and_each_row_is_found_in_them() -> None:
    space = space_of(*SPACES[0])
    knobs = [knob for knob in space.family.knobs if knob.name in ("tile_n", "schedule", "stages", "pdl")]
    rows, which = distinct(space.columns, knobs)
    assert len({tuple(rows.row(row).items()) for row in range(len(rows))}) == len(rows) < len(space)
    for knob in knobs:
        assert np.array_equal(rows[knob.name][which], space.columns[knob.name])
    with pytest.raises(KeyError):
        rows["tile_m"]


@pytest.mark.parametrize(("key", "plain"), [
    ("uint8,uint8,s32,s32", "int8"), ("fp8_e4m3,fp8_e4m3,bf16,f32_promoted", "fp8_e4m3"),
    ("fp8_e4m3,fp8_e5m2,bf16,f32", "fp8_e4m3"), ("fp8_e4m3,fp8_e4m3,fp16,f32", "fp8_e4m3"),
    ("bf16,bf16,f32,f32", "bf16"),
])  # fmt: skip
def test_the_bound_has_the_rate_of_the_plain_format(key: str, plain: str) -> None:
    problem, alike = Gemm.from_key(f"gemm:{key}:nt:8192x8192x8192:b1:none"), Gemm.of(8192, 8192, 8192, plain)
    for card in ("NVIDIA H100 80GB HBM3", "NVIDIA L40S"):
        assert roofline_us(problem, profile_named(card)) == roofline_us(alike, profile_named(card))


def test_a_card_without_8_bit_floats_bounds_them_by_bf16() -> None:
    card = profile_named("NVIDIA A100-SXM4-80GB")
    assert card.peak_tflops("fp8_e4m3_promoted") == card.peak_tflops("bf16")
