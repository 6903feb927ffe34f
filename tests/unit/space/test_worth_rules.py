"""Rules of sm90_wgmma on what is worth trying: what they keep of products and cards that were measured."""

from __future__ import annotations

import pytest

from space.devices import profile_named
from space.explain import explain
from space.families.sm90_wgmma.derive import streams_large_rows
from space.family import family_named
from space.kinds.gemm import Gemm

FAMILY = family_named("sm90_wgmma")
SQUARE = Gemm.parse("4096x4096x4096")


@pytest.mark.parametrize("family", ["sm90_wgmma", "gemv"])
def test_an_early_start_is_left_to_the_context(family: str) -> None:
    rule = next(rule for rule in family_named(family).rules if rule.id == "worth.pdl")
    configs = [family_named(family).config({"pdl": pdl}) for pdl in (0, 1)]
    assert rule.mask(family_named(family).columns(Gemm.parse("1x4096x4096"), configs)).tolist() == [True, False]


def test_worth_rules_say_nothing_about_an_illegal_config() -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config({"tile_n": 256, "stages": 16, "l2_promotion": 0}))
    assert (said.legal, said.not_worth) == (False, ())
    legal = explain(FAMILY, SQUARE, FAMILY.config({"l2_promotion": 0}))
    assert "worth.l2_promotion" in [entry.rule for entry in legal.not_worth]


@pytest.mark.parametrize(
    ("shape", "layout", "tile_n", "kept"),
    [
        ("16384x4096x4096", "nt", 160, True),  # 3,296 tiles, not 3,328, but 25 waves instead of 26
        ("16384x4096x4096", "nt", 256, False),  # 2,048 tiles either way
        ("16384x28672x4096", "nt", 160, False),  # 175 waves either way
        ("4096x4096x4096", "nt", 160, False),  # 832 tiles either way
        ("4096x4096x4096", "nn", 160, True),  # 160 columns of an MN-major B are no whole number of 64
        ("4096x4096x4096", "nn", 192, False),
        ("4096x4096x4096", "tn", 160, False),  # A is MN-major too
        ("65536x1024x1024", "nt", 160, True),  # 3,280 tiles, not 3,584
    ],
)
def test_large_products_are_transposed_where_that_divides_them_better(
    shape: str, layout: str, tile_n: int, kept: bool
) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.swap_ab")
    configs = [FAMILY.config({"swap_ab": swap_ab, "tile_m": 128, "tile_n": tile_n}) for swap_ab in (0, 1)]
    columns = FAMILY.columns(Gemm.parse(shape, layout=layout), configs, profile_named("NVIDIA H100 80GB HBM3"))
    assert rule.mask(columns).tolist() == [True, kept]


@pytest.mark.parametrize(
    ("shape", "tile_m", "kept"),
    [
        ("128x4096x14336", 64, True),  # 128 tiles, 224 stages
        ("128x4096x4096", 64, True),  # 64 stages
        ("128x4096x4032", 64, False),
        ("128x4096x14336", 128, False),  # one wave of higher tiles
        ("128x28672x4032", 64, True),  # 896 tiles
    ],
)
def test_ping_pong_is_for_several_waves_or_a_long_k(shape: str, tile_m: int, kept: bool) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.schedule")
    config = FAMILY.config({"schedule": "pingpong", "tile_m": tile_m, "tile_n": 64})
    columns = FAMILY.columns(Gemm.parse(shape), [config], profile_named("NVIDIA H200"))
    assert rule.mask(columns).tolist() == [kept]


@pytest.mark.parametrize(
    ("shape", "cluster_k", "kept"),
    [
        ("8x256x1280", 8, True),  # slices of two and three stages of 64
        ("128x256x1280", 8, False),
        ("128x256x1280", 4, True),
        ("8x16384x1280", 8, False),  # 256 tiles fill the GPU
    ],
)
def test_slices_of_few_rows_may_be_short(shape: str, cluster_k: int, kept: bool) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.cluster_k")
    config = FAMILY.config({"swap_ab": 1, "tile_m": 64, "tile_n": 128, "cluster_k": cluster_k})
    assert rule.mask(FAMILY.columns(Gemm.parse(shape), [config], profile_named("NVIDIA H200"))).tolist() == [kept]


@pytest.mark.parametrize(("shape", "kept"), [("8x472x128", [True, True]), ("8x472x384", [False, True])])
def test_few_rows_are_transposed_unless_k_is_short(shape: str, kept: list[bool]) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.swap_ab")
    configs = [FAMILY.config({"swap_ab": swap_ab, "tile_m": 64, "tile_n": 16}) for swap_ab in (0, 1)]
    assert rule.mask(FAMILY.columns(Gemm.parse(shape), configs)).tolist() == kept


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ("512x4096x14336", {("along_m", 1), ("along_m", 4), ("along_n", 1), ("along_n", 4)}),  # 4 × 32 tiles
        ("256x4096x14336", {("along_m", 1)}),  # two tiles high
        ("1024x4096x4096", {(raster, group) for raster in ("along_m", "along_n") for group in (1, 4, 12)}),  # two waves
    ],
)
def test_one_wave_has_several_orders_where_it_is_high_and_wide(shape: str, kept: set[tuple[str, int]]) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.raster_wave")
    orders = [(raster, group) for raster in ("along_m", "along_n") for group in (1, 4, 12)]
    configs = [FAMILY.config({"tile_n": 128, "raster": raster, "raster_group": group}) for raster, group in orders]
    told = rule.mask(FAMILY.columns(Gemm.parse(shape), configs, profile_named("NVIDIA H200"))).tolist()
    assert {order for order, worth in zip(orders, told, strict=True) if worth} == kept


@pytest.mark.parametrize(
    ("shape", "knobs", "kept"),
    [
        ("64x4096x14336", {"tile_n": 48}, {6, 7, 8}),  # 86 rings of stages with 12 KiB of weights
        ("64x4096x14336", {"tile_n": 64}, {6, 7}),  # no more stages fit
        ("16x28672x4096", {"tile_n": 16, "swap_ab": 1}, {3, 4, 5}),
        ("16x28672x4096", {"tile_n": 16, "swap_ab": 1, "tile_m": 128, "consumer_warpgroups": 2}, {2, 3, 4}),
        ("128x4096x14336", {"tile_n": 64}, {6, 7}),  # weights are read more than once: as deep as fits
        ("8192x4096x64", {"tile_n": 128}, {2, 3, 4}),  # many waves: the producer runs ahead
        ("512x1024x64", {"tile_n": 128}, {2}),  # one wave
    ],
)
def test_where_memory_sets_the_pace_rings_hold_weights_for_its_latency(
    shape: str, knobs: dict[str, int], kept: set[int]
) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.stages")
    problem = Gemm.parse(shape)
    tile = {"tile_m": 64, "tile_k": 128, "consumer_warpgroups": 1, "epilogue": "direct"}
    configs = [FAMILY.config({**tile, **knobs, "stages": stages}) for stages in range(2, 13)]
    mask = rule.mask(FAMILY.columns(problem, configs, profile_named("NVIDIA H100 80GB HBM3")))
    assert {config.number("stages") for config, worth in zip(configs, mask, strict=True) if worth} == kept


@pytest.mark.parametrize(
    ("dtype", "shape", "layout", "kept"),
    [
        ("bf16", "16x128256x4096", "nt", {1, 2, 4, 8}),
        ("bf16", "8x201088x2880", "nt", {1, 2, 4}),  # eight slices would have three stages
        ("bf16", "128256x16x4096", "nt", {1, 2, 4, 8}),  # the weights are A
        ("bf16", "128256x16x4096", "nn", {1, 2, 4, 8}),  # and lie along K, though B doesn't
        ("bf16", "128256x16x4096", "tn", {1}),
        ("bf16", "32x25000x4000", "nt", {1, 2, 4, 8}),  # 200 MB
        ("bf16", "32x24999x4000", "nt", {1}),
        ("bf16", "33x128256x4096", "nt", {1}),  # sums take longer than whole rows gain
        ("int8", "16x28672x4096", "nt", {1}),  # 117 MB
        ("bf16", "16x128256x4096", "nn", {1}),  # a row of B has no more than one block's columns
        ("bf16", "16x4096x4096", "nt", {1, 2}),  # tiles alone do not fill the GPU
    ],
)
def test_clusters_along_k_read_whole_rows_of_large_weights(
    dtype: str, shape: str, layout: str, kept: set[int]
) -> None:
    rule = next(rule for rule in FAMILY.rules if rule.id == "worth.cluster_k")
    problem = Gemm.parse(shape, dtype, layout)
    tile = {"tile_m": 64, "tile_n": 64, "tile_k": 128, "consumer_warpgroups": 1, "epilogue": "direct", "swap_ab": 1}
    configs = [FAMILY.config({**tile, "cluster_k": blocks}) for blocks in (1, 2, 4, 8)]
    mask = rule.mask(FAMILY.columns(problem, configs, profile_named("NVIDIA H100 80GB HBM3")))
    assert {config.number("cluster_k") for config, worth in zip(configs, mask, strict=True) if worth} == kept


def test_a_batch_streams_the_weights_of_all_its_products() -> None:
    few, many = (Gemm.of(16, 6250, 4000, batch=batch) for batch in (3, 4))
    assert (streams_large_rows(few), streams_large_rows(many)) == (False, True)


def test_sums_within_clusters_hide_while_large_weights_stream() -> None:
    device = profile_named("NVIDIA H100 80GB HBM3")
    tile = {"tile_m": 64, "tile_n": 16, "tile_k": 128, "consumer_warpgroups": 1, "epilogue": "direct", "swap_ab": 1,
            "producer_registers": 0}  # fmt: skip

    def ratio(shape: str, blocks: int = 4) -> float:
        configs = [FAMILY.config({**tile, "cluster_k": each}) for each in (1, blocks)]
        alone, cluster = FAMILY.estimate_us(FAMILY.columns(Gemm.parse(shape), configs, device), device)
        return float(cluster / alone)

    # 341.6 against 334.4 µs, as screened on an H100.
    assert 0.97 < ratio("16x128256x4096") < 1.0 < ratio("16x128256x4096", blocks=2)
    assert ratio("16x24000x4096") > 1.05
