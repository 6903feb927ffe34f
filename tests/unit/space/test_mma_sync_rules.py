"""Rules of `mma_sync`: what each target allows, with numbers and the nearest legal change."""

from __future__ import annotations

import numpy as np
import pytest

from space.devices import DeviceProfile, profile_named
from space.enumerate import enumerate_space
from space.explain import explain, is_legal, legal_mask
from space.families.mma_sync.operands import conflict_degree, copy_bytes, needs_packing
from space.family import families_for, family_for, family_named
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.rank import rank

FAMILY = family_named("mma_sync")
CARDS = {name: profile_named(name) for name in ("A100 80GB SXM", "RTX 3090", "RTX 4090", "RTX 5090", "GB10")}
A100, RTX_3090, RTX_4090, RTX_5090, _ = CARDS.values()
H200, B200 = profile_named("NVIDIA H200"), profile_named("NVIDIA B200")
SQUARE = Gemm.parse("4096x4096x4096")


def broken(problem: Gemm, device: DeviceProfile, **knobs: object) -> dict[str, str]:
    found = explain(FAMILY, problem, FAMILY.config(knobs), device)
    return {entry.rule: entry.numbers for entry in found.broken}


def test_the_default_is_legal_on_every_target() -> None:
    for device in CARDS.values():
        assert broken(SQUARE, device) == {}
        assert families_for(device.arch.name, SQUARE)[0] is FAMILY


#: (rule, card, problem, knobs, numbers): each legal rule broken once, by a config that breaks no other but those after.
BROKEN: list[tuple[str, DeviceProfile, Gemm, dict[str, object], str]] = [
    ("arch.target", B200, SQUARE, {},
     "sm_100a; it is built for sm_120a, sm_121a, sm_80, sm_86, sm_87, sm_89, sm_90a"),
    ("arch.mma_sync", RTX_3090, Gemm.of(64, 64, 64, "fp8_e4m3"), {"tile_k": 64},
     "sm_86 has no mma.sync of fp8_e4m3 x fp8_e4m3: it has bf16, fp16, tf32, int8, uint8"),
    ("arch.fp8_converted", H200, Gemm.of(64, 64, 64, "fp8_e4m3"), {"tile_k": 64},
     "fp8_e4m3 on sm_90a, whose wgmma multiplies fp8"),
    ("arch.fp8_output", A100, Gemm.of(64, 64, 64, "bf16,bf16,fp8_e4m3,f32"), {}, "C is fp8_e4m3 on sm_80"),
    ("arch.mma_sync", RTX_3090, Gemm.of(64, 64, 64, "fp8_e4m3_acc16"), {"tile_k": 64},
     "sm_86 has no mma.sync of fp8_e4m3 x fp8_e4m3 with fp16 sums: it has bf16, fp16, tf32, int8, uint8"),
    ("epilogue.scales", RTX_5090, Gemm.of(64, 64, 64, "fp8_e4m3", epilogue="scaled"), {"tile_k": 64},
     "epilogue scaled; no kernel for sm_120a reads scales: use alpha"),
    ("mma.block_scale", RTX_4090, Gemm.of(64, 64, 64, "fp8_e4m3"), {"tile_k": 64, "unit_scales": 1},
     "unit_scales 1 of fp8_e4m3 with f32 sums on sm_89"),
    ("copies.tma", A100, SQUARE, {"copies": "tma"}, "sm_80 has no TMA: use cp_async"),
    ("copies.pitch", RTX_5090, Gemm.of(64, 64, 4100), {"copies": "tma"},
     "rows start at multiples of 8 B: use cp_async"),
    ("copies.words", RTX_5090, Gemm.of(64, 64, 64, "tf32", "nn"), {"copies": "tma"},
     "nn with B of tf32 not along K: use cp_async"),
    ("copies.words", RTX_5090, Gemm.of(64, 64, 64, "tf32", "tn"), {"copies": "tma", "swap_ab": 1},
     "tn with A and B of tf32 not along K: use cp_async"),
    ("copies.line", A100, Gemm.of(64, 64, 2**30), {}, "lines of 2,147,483,648 B"),
    ("copies.line", A100, Gemm.of(2**30, 64, 64, layout="tn"), {}, "lines of 2,147,483,648 B"),
    ("copies.swizzle", RTX_5090, SQUARE, {"copies": "tma", "tile_n": 8, "warps_n": 1}, "tile_n 8 by 64 B of K"),
    ("copies.stream", RTX_5090, SQUARE, {"copies": "tma", "stream_k": 1, "tile_n": 64},
     "stream_k 1: use cp_async, or stream_k 0"),
    ("copies.slices", H200, SQUARE, {"copies": "tma", "tile_m": 64, "tile_n": 16, "warps_m": 4, "warps_n": 1,
     "tile_k": 128, "stages": 3, "blocks_per_sm": 2, "split_k": 2, "persistent": 1},
     "split_k 2: use cp_async, or split_k 1"),
    ("mma.m", A100, SQUARE, {"tile_m": 32, "warps_m": 4}, "tile_m 32 is not a multiple of 16·4"),
    ("mma.n", A100, SQUARE, {"tile_n": 48, "warps_n": 4}, "tile_n 48 is not a multiple of 8·4"),
    ("mma.k", A100, SQUARE, {"tile_k": 16}, "tile_k 16 is 32 B of bf16"),
    ("mma.promotion", RTX_5090, Gemm.of(64, 64, 512, "fp8_e4m3_promoted"), {"tile_k": 256, "stages": 2, "tile_n": 64},
     "tile_k 256 > 128"),
    ("block.threads", RTX_3090, SQUARE, {"tile_m": 64, "warps_m": 4, "warps_n": 4, "blocks_per_sm": 4, "stages": 2},
     "4 blocks of 512 threads; sm_86 holds 16 blocks and 1,536 threads"),
    ("copy.groups", A100, SQUARE, {"tile_m": 64, "tile_n": 64, "warps_m": 1, "warps_n": 1, "tile_k": 128, "stages": 2},
     "32,768 B of a stage over 32 threads are 64 groups each"),
    ("copy.groups", A100, Gemm.of(512, 512, 1001), {"tile_k": 128, "stages": 2},
     "65,536 B of a stage over 128 threads are 32 groups each"),
    ("copy.loads", A100, Gemm.of(512, 512, 1001), {"tile_k": 32}, "128 threads load 64 pieces each at a step"),
    ("registers.held", A100, SQUARE, {"tile_n": 192}, "192 sums + 2·40 of fragments = 272 held, + 48 beside = 320"
     " > 255 registers of a thread in 1 blocks of 128"),
    ("registers.finish", A100, Gemm.of(4096, 4096, 4096, epilogue="bias+gelu"), {},
     "128 sums need 256 > 255 registers of a thread in 1 blocks of 128"),
    ("registers.source", RTX_5090, Gemm.of(4096, 4096, 4096, epilogue="alpha+beta"),
     {"tile_m": 64, "tile_n": 192}, "a warp of 32 by 96 has 3,072 elements > 7·255 = 1,785"),
    ("registers.chunks", RTX_4090, Gemm.of(4096, 4096, 4096, epilogue="beta+bias+gelu"), {"tile_n": 96},
     "a warp of 64 by 48 finishes 64·64 = 4,096 elements > 3,072"),
    ("smem.capacity", RTX_3090, SQUARE, {"stages": 7},
     "7·16,384 B of stages + 128 B = 114,816 B > 101,376 B on sm_86"),
    ("smem.resident", RTX_3090, SQUARE, {"stages": 4, "blocks_per_sm": 2}, "2·(65,664 + 1,024) B > 102,400 B on sm_86"),
    ("stream.alone", A100, SQUARE, {"stream_k": 1, "tile_n": 64, "persistent": 1},
     "split_k 1, persistent 1; use 1 and 0 beside stream_k"),
    ("stream.threads", A100, SQUARE, {"stream_k": 1, "tile_m": 64, "tile_n": 64, "warps_n": 1},
     "each of 64 threads copies more groups than fit in registers beside the walk"),
    ("stream.stages", A100, Gemm.of(4096, 256, 2**30 - 8), {"stream_k": 1}, "64 tiles of 33,554,432 stages"),
    ("split.k", A100, Gemm.of(64, 64, 64), {"split_k": 4}, "split_k 4 > 2 stages in K"),
    ("split.workspace", A100, SQUARE, {"split_k": 2}, "134,234,112 B > 67,108,864 B"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "device", "problem", "knobs", "numbers"), BROKEN, ids=[row[0] for row in BROKEN])
def test_each_limit_is_stated_with_its_numbers(
    rule: str, device: DeviceProfile, problem: Gemm, knobs: dict[str, object], numbers: str
) -> None:
    found = broken(problem, device, **knobs)
    assert next(iter(sorted(found, key=[row[0] for row in BROKEN].index))) == rule, found
    assert found[rule].startswith(numbers)


@pytest.mark.parametrize(
    ("device", "problem", "said"),
    [
        (A100, Gemm.of(4096, 4096, 4096, layout="nn"), "192 sums + 2·40 of fragments + 6 addresses = 278 held, "),
        (A100, Gemm.of(4096, 4096, 4096, "tf32", "tn"), "192 sums + 2·40 of fragments + 8 addresses = 280 held, "),
        (RTX_5090, Gemm.of(4096, 4096, 4096, "fp8_e4m3_promoted"), "2·192 sums + 2·40 of fragments = 464 held, "),
    ],
)
def test_the_sum_of_held_registers_has_all_its_parts(device: DeviceProfile, problem: Gemm, said: str) -> None:
    assert broken(problem, device, tile_n=192, tile_k=64)["registers.held"].startswith(said)


#: (epilogue, knobs, whether registers suffice): warps of 64 by 48 and 48 by 64, of 128 by 8, 64 by 32 and 192 by 8.
FINISHED: list[tuple[str, dict[str, object], bool]] = [
    ("beta+bias+gelu", {"tile_n": 96}, False), ("alpha+beta+bias+gelu", {"tile_n": 96}, False),
    ("beta+bias+gelu", {"tile_m": 96}, True), ("beta+bias+gelu", {"tile_m": 256, "tile_n": 16}, False),
    ("beta+bias+gelu", {"tile_n": 96, "swap_ab": 1}, True), ("beta+bias+silu", {"tile_n": 96}, True),
    ("beta+bias+gelu", {"tile_n": 64}, True), ("beta+bias+gelu", {"tile_n": 64, "stream_k": 1}, True),
    ("beta+bias+gelu", {"tile_m": 96, "stream_k": 1}, False), ("beta+gelu", {"tile_m": 96, "stream_k": 1}, True),
    ("beta+gelu", {"tile_n": 96}, True), ("beta+gelu", {"tile_m": 192, "tile_n": 8, "warps_m": 1, "warps_n": 1}, False),
]  # fmt: skip


@pytest.mark.parametrize(("epilogue", "knobs", "fits"), FINISHED, ids=str)
def test_a_source_before_gelu_leaves_fewer_elements_to_a_warp(
    epilogue: str, knobs: dict[str, object], fits: bool
) -> None:
    problem = Gemm.of(4096, 4096, 4096, epilogue=epilogue)
    assert ("registers.chunks" in broken(problem, RTX_4090, **knobs)) == (not fits)
    assert "registers.chunks" not in broken(problem, H200, **knobs)


def test_on_geforce_blackwell_a_source_and_a_bias_before_gelu_take_powers_of_2() -> None:
    def refused(epilogue: str, **knobs: object) -> bool:
        return "registers.source" in broken(Gemm.of(4096, 4096, 4096, epilogue=epilogue), RTX_5090, **knobs)

    assert refused("beta+bias+gelu", tile_n=96)
    assert refused("beta+bias+gelu", tile_n=96, copies="tma")
    assert refused("beta", tile_m=64, tile_n=160, warps_n=4, blocks_per_sm=2)
    assert not refused("beta", tile_m=64, tile_n=160, warps_n=4)
    assert not refused("beta+bias+gelu", tile_m=96)
    assert not refused("beta+bias+gelu", tile_n=96, swap_ab=1)
    assert not refused("beta+bias+silu", tile_n=96)
    assert not refused("beta+bias", tile_n=96)


@pytest.mark.parametrize(("dtype", "n"), [("bf16", 4097), ("tf32", 4096), ("fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", 4096)])
def test_rows_that_are_not_stored_by_chunks_leave_it_more(dtype: str, n: int) -> None:
    problem = Gemm.of(4096, n, 4096, dtype, epilogue="beta+bias+gelu")
    assert "registers.chunks" not in broken(problem, RTX_4090, tile_n=96)


def test_lines_that_cp_async_counts_are_legal_and_tma_copies_longer_ones() -> None:
    tma = {"copies": "tma", "tile_m": 64, "tile_n": 64}
    assert broken(Gemm.of(64, 64, 2**30 - 8), A100) == broken(Gemm.of(64, 64, 2**30), RTX_5090, **tma) == {}


def test_the_rows_above_break_every_rule_but_those_of_several_families() -> None:
    assert {rule.id for rule in FAMILY.legal} - {row[0] for row in BROKEN} == {
        "grid.tiles", "grid.edge", "pack.pitch", "sums.range",
    }  # fmt: skip


#: (rule, problem, knobs within its limit, knobs beyond it), on the A100's 108 multiprocessors.
WORTH: list[tuple[str, str, dict[str, object], dict[str, object]]] = [
    ("swap_ab", "8x4096x4096", {"swap_ab": 1}, {"swap_ab": 0}),
    ("warps", "4096x4096x4096", {"warps_n": 4}, {"warps_m": 4, "warps_n": 4}),
    ("warps", "4096x4096x4096", {"warps_m": 1, "tile_m": 32, "tile_n": 64}, {"warps_m": 1, "tile_m": 32}),
    # 640 rows and columns read for each k, where 512 would do, and 1,152 for 768.
    ("warp_tile", "4096x4096x4096", {"warps_m": 4, "warps_n": 1}, {"warps_m": 1, "warps_n": 8}),
    ("tile_k", "4096x4096x4096", {"tile_k": 128, "tile_m": 32, "tile_n": 64}, {"tile_k": 128}),
    ("tile_k", "4096x4096x4096", {"tile_k": 128, "copies": "tma"}, {"tile_k": 128}),
    ("padding", "100x128x4096", {}, {"tile_m": 192}),
    # Ten stages fit.
    ("stages", "4096x4096x4096", {"stages": 3}, {"stages": 2}),
    ("stages", "4096x4096x4096", {"stages": 4}, {"stages": 5}),
    ("stages", "4096x4096x4096", {"stages": 9}, {"stages": 8}),
    ("stages", "4096x4096x4096", {"stages": 10}, {"stages": 11}),
    ("resident", "4096x4096x4096", {"warps_m": 1, "blocks_per_sm": 4}, {"warps_m": 1, "blocks_per_sm": 3}),
    ("resident", "4096x4096x4096", {"blocks_per_sm": 8}, {"warps_m": 4, "blocks_per_sm": 6}),
    # 192 and 256 blocks for 108 multiprocessors; slices of four stages and of three.
    ("split_k", "512x512x4096", {"split_k": 12}, {"split_k": 16}),
    ("split_k", "512x512x512", {"split_k": 4}, {"split_k": 6}),
    # 352 tiles in waves of 108 leave 19 % idle; 216 blocks at once, 7 %.
    ("stream_k", "1408x4096x4096", {"stream_k": 1}, {"stream_k": 1, "tile_n": 64}),
    ("raster_wave", "1152x1664x4096", {"raster": "along_n"}, {"raster": "along_n", "tile_n": 256}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "shape", "within", "beyond"), WORTH)
def test_worth_rules_remove_what_exceeds_their_limits(
    rule: str, shape: str, within: dict[str, object], beyond: dict[str, object]
) -> None:
    assert worth_trying(rule, Gemm.parse(shape), [within, beyond], A100) == [True, False]


def test_products_are_transposed_up_to_64_rows() -> None:
    both: list[dict[str, object]] = [{"swap_ab": 0}, {"swap_ab": 1}]
    kept = {m: worth_trying("swap_ab", Gemm.of(m, 4096, 4096), both, A100) for m in (8, 9, 64, 65)}
    assert kept == {8: [False, True], 9: [True, True], 64: [True, True], 65: [True, False]}


def test_tma_copies_large_tiles_of_two_waves() -> None:
    tma: list[dict[str, object]] = [{"copies": "tma"}, {"copies": "tma", "tile_n": 96}]
    # 272 tiles for 132 multiprocessors, and 256.
    assert worth_trying("copies", Gemm.of(2112, 2048, 4096), tma, H200) == [True, False]
    assert worth_trying("copies", Gemm.of(2048, 2048, 4096), tma, H200) == [False, False]


def worth_trying(rule: str, problem: Gemm, knobs: list[dict[str, object]], device: DeviceProfile) -> list[bool]:
    (worth,) = (each for each in FAMILY.rules if each.id == f"worth.{rule}")
    kept: list[bool] = worth.mask(FAMILY.columns(problem, list(map(FAMILY.config, knobs)), device)).tolist()
    return kept


def test_a_producer_warpgroup_gives_its_registers_to_the_warps_that_multiply() -> None:
    def of(**knobs: object) -> tuple[int, ...]:
        derived = FAMILY.derive(SQUARE, FAMILY.config({"copies": "tma"} | knobs), H200)
        return tuple(derived[name] for name in ("threads", "producer_threads", "entry_registers", "consumer_registers"))

    assert of(tile_n=256, warps_n=4) == (384, 128, 168, 240)
    # Too few threads to need more registers, and so many that ptxas would exceed what each starts with.
    assert of() == (160, 32, 255, 255)
    assert of(tile_m=32, tile_n=32, blocks_per_sm=8)[1:] == (32, 48, 48)


def test_large_products_try_the_ring_of_a_producer_first_and_small_ones_do_not() -> None:
    for dtype, tile_k in (("bf16", 128), ("fp16", 128), ("tf32", 64), ("int8", 256)):
        for side in (4096, 8192):
            problem = Gemm.of(side, side, side, dtype)
            first = rank(enumerate_space(FAMILY, problem, H200), H200).configs(48)
            shapes = {(each["tile_m"], each["tile_n"], each["tile_k"], each["stages"]) for each in first
                      if each["copies"] == "tma" and each["persistent"] == 1}  # fmt: skip
            assert (128, 256, tile_k, 2) in shapes
    for shape in ("16x4096x4096", "512x512x4096", "1000x1000x1000"):
        assert rank(enumerate_space(FAMILY, Gemm.parse(shape), H200), H200).config(0)["copies"] == "cp_async"


@pytest.mark.parametrize("knobs", [{"stages": 7}, {"tile_n": 192}, {"tile_k": 16}, {"warps_n": 4, "tile_n": 48}],
                         ids=str)  # fmt: skip
def test_the_nearest_legal_change_is_legal(knobs: dict[str, object]) -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config(knobs), RTX_3090)
    assert not said.legal
    assert said.nearest is not None
    assert is_legal(FAMILY, SQUARE, said.nearest, RTX_3090)
    assert said.change.count("=") <= 2


#: Narrower copies by what rows are multiples of; 8-bit operands that do not lie along K are packed.
COPIES = [
    ("4096x4096x4096", "bf16", "nt", (16, 16), False), ("64x64x4100", "bf16", "nt", (8, 8), False),
    ("64x66x4098", "bf16", "nn", (4, 4), False), ("63x65x4097", "bf16", "tn", (2, 2), False),
    ("64x64x77", "int8", "nt", (1, 1), False), ("64x64x77", "tf32", "nt", (4, 4), False),
    ("64x64x77", "int8", "tn", (16, 16), True), ("64x63x77", "tf32", "nn", (4, 4), False),
    ("64x62x77", "tf32", "tn", (16, 8), False),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype", "layout", "widths", "packs"), COPIES, ids=lambda value: str(value))
def test_copies_are_as_wide_as_every_row_is_aligned(
    shape: str, dtype: str, layout: str, widths: tuple[int, int], packs: bool
) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    assert (copy_bytes(problem, "a"), copy_bytes(problem, "b")) == widths
    assert any(needs_packing(problem, operand) for operand in "ab") == packs
    constants = FAMILY.compile_constants(problem, FAMILY.config({"swap_ab": 1}), A100)
    assert (constants["copy_bytes_b"], constants["copy_bytes_a"]) == widths


@pytest.mark.parametrize(("span", "degree"), [(32, 2), (64, 4), (128, 8)])
def test_the_swizzle_removes_the_bank_conflicts_that_plain_rows_have(span: int, degree: int) -> None:
    assert conflict_degree(span, swizzled=False) == degree
    assert conflict_degree(span, swizzled=True) == 1


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("shape", ["4096x4096x4096", "1x4096x4096", "16x28672x4096", "333x777x1001", "1x1x1"])
def test_every_problem_keeps_candidates_and_the_estimate_ranks_them(card: str, shape: str) -> None:
    problem, device = Gemm.parse(shape), CARDS[card]
    ranked = rank(enumerate_space(FAMILY, problem, device), device)
    assert 0 < len(ranked) < 30_000
    assert (ranked.estimates_us > 0).all()
    assert ranked.config(0)["swap_ab"] == int(problem.m == 1)
    assert is_legal(FAMILY, problem, ranked.config(0), device)


def test_words_not_along_k_take_an_address_for_each_eight_rows_of_a_span() -> None:
    def addresses(layout: str, **knobs: object) -> int:
        problem = Gemm.of(4096, 4096, 4096, "tf32", layout)
        derived = FAMILY.derive(problem, FAMILY.config({"warps_m": 1, "warps_n": 1} | knobs), A100)
        return derived["held_registers"] - derived["accumulator_registers"] - 2 * derived["fragment_registers"]

    assert (addresses("nt"), addresses("nn"), addresses("tt"), addresses("tn")) == (0, 4, 4, 8)
    assert (addresses("nn", tile_n=8), addresses("nn", tile_n=16), addresses("tt", tile_m=16)) == (1, 2, 2)


def test_a_lone_warp_that_copies_16_groups_at_once_has_too_few_registers_for_words() -> None:
    def held(layout: str, **knobs: object) -> str:
        lone = {"tile_m": 64, "tile_n": 64, "tile_k": 16, "warps_m": 1, "warps_n": 1}
        return broken(Gemm.of(4096, 4096, 8192, "tf32", layout), A100, **lone, **knobs).get("registers.held", "")

    assert held("tn").startswith("128 sums + 2·32 of fragments + 8 addresses = 200 held, + 56 beside = 256 > 255")
    assert held("nn") == held("tt") == held("nt") == ""
    four = {"tile_m": 128, "tile_n": 128, "tile_k": 16, "warps_m": 2, "warps_n": 2}
    assert broken(Gemm.of(4096, 4096, 8192, "tf32", "tn"), A100, **four) == {}


def test_f16_sums_take_half_of_the_registers() -> None:
    knobs = FAMILY.config({"tile_m": 256, "tile_k": 64, "warps_m": 2, "warps_n": 2, "stages": 3})
    half, whole = Gemm.of(4096, 4096, 4096, "fp16_acc16"), Gemm.of(4096, 4096, 4096, "fp16")
    assert FAMILY.derive(half, knobs, A100)["accumulator_registers"] == 128
    assert FAMILY.derive(whole, knobs, A100)["accumulator_registers"] == 256
    assert not is_legal(FAMILY, whole, knobs, A100)


def test_on_hopper_f16_sums_are_mma_syncs_alone() -> None:
    problem = Gemm.of(4096, 4096, 4096, "fp16_acc16")
    assert families_for("sm_90a", problem) == (FAMILY,)
    assert family_for("sm_90a", problem) is FAMILY
    assert FAMILY not in families_for("sm_90a", SQUARE)
    hopper = families_for("sm_90a", Gemm.of(64, 64, 64, "fp8_e4m3_acc16"))[0]
    said = explain(hopper, Gemm.of(64, 64, 64, "fp8_e4m3_acc16"), hopper.config({}), H200).broken
    assert {entry.rule: entry.numbers for entry in said}["problem.sums"].startswith("f16 sums; use f32 sums")


def test_the_estimate_knows_that_geforce_doubles_f16_sums() -> None:
    half, whole = (Gemm.of(8192, 8192, 8192, word) for word in ("fp16_acc16", "fp16"))
    for device, ratio in ((RTX_5090, 0.75), (A100, 1.01)):
        first = [rank(enumerate_space(FAMILY, problem, device), device).estimates_us[0] for problem in (half, whole)]
        assert first[0] < ratio * first[1]


def test_fp8_with_f32_sums_is_block_scaled_where_the_target_can() -> None:
    for word in ("fp8_e4m3", "fp8_e5m2_promoted"):
        problem = Gemm.of(4096, 4096, 4096, word)
        ranked = rank(enumerate_space(FAMILY, problem, RTX_5090), RTX_5090)
        assert ranked.config(0)["unit_scales"] == 1
        plain = FAMILY.columns(problem, [FAMILY.config(dict(ranked.config(0).values) | {"unit_scales": 0})], RTX_5090)
        assert legal_mask(FAMILY, plain).all()
        assert FAMILY.estimate_us(plain, RTX_5090)[0] > 1.5 * ranked.estimates_us[0]
    for device, word in ((RTX_5090, "fp8_e4m3_acc16"), (RTX_5090, "int8"), (RTX_4090, "fp8_e4m3")):
        problem = Gemm.of(4096, 4096, 4096, word)
        assert rank(enumerate_space(FAMILY, problem, device), device).config(0)["unit_scales"] == 0


@pytest.mark.parametrize(("tiles", "shared", "blocks"), [(1, 1, 108), (107, 107, 108), (108, 0, 0), (109, 109, 108),
                                                         (300, 192, 108)])  # fmt: skip
def test_stream_k_shares_the_tiles_that_fill_no_whole_wave(tiles: int, shared: int, blocks: int) -> None:
    problem = Gemm.of(128 * tiles, 128, 8192)
    derived = FAMILY.derive(problem, FAMILY.config({"stream_k": 1}), A100)
    assert (derived["shared_tiles"], derived["sharing_blocks"]) == (shared, blocks)
    assert FAMILY.derive(problem, FAMILY.config({}), A100)["shared_tiles"] == 0
    assert FAMILY.derive(Gemm.of(128, 128, 64), FAMILY.config({"stream_k": 1}), A100)["sharing_blocks"] == 2


def test_stream_k_is_tried_where_whole_waves_leave_multiprocessors_idle() -> None:
    def tried(shape: str) -> set[int]:
        return set(enumerate_space(FAMILY, Gemm.parse(shape), A100).columns["stream_k"].tolist())

    assert tried("1536x1536x8192") == {0, 1}
    assert tried("64x64x64") == {0}


def test_every_dtype_and_layout_of_a_target_keeps_candidates() -> None:
    for dtype in DTYPES:
        for layout in LAYOUTS:
            problem = Gemm.of(512, 512, 512, dtype, layout)
            assert len(enumerate_space(FAMILY, problem, RTX_5090)) > 0
            assert FAMILY.takes(problem, A100) == ("fp8" not in dtype)


def test_candidates_are_exactly_the_legal_rows_that_are_worth_trying() -> None:
    problem = Gemm.parse("777x512x1000")
    space = enumerate_space(FAMILY, problem, A100)
    rng = np.random.default_rng(1)
    drawn = FAMILY.rows_of(problem, np.stack([rng.choice(knob.column(), 50_000) for knob in FAMILY.knobs], 1), A100)
    kept = legal_mask(FAMILY, drawn)
    for rule in FAMILY.rules:
        kept &= rule.mask(drawn)
    candidates = set(FAMILY.configs_of(space.columns))
    assert set(FAMILY.configs_of(drawn.take(kept))) <= candidates
    assert legal_mask(FAMILY, space.columns).all()
