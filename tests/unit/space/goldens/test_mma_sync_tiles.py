"""Golden values for `mma_sync`: tiles that CUTLASS and quack instantiate, and the stages that fit each target."""

from __future__ import annotations

import pytest

from space.devices import profile_named
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm

FAMILY = family_named("mma_sync")
A100 = profile_named("A100 80GB SXM")
RTX_3090, RTX_4090, RTX_5090 = (profile_named(name) for name in ("RTX 3090", "RTX 4090", "RTX 5090"))

#: NVIDIA/cutlass, `python/cutlass_library/generator.py`, GenerateSM80_TensorOp_16816: tile, stages, warps.
CUTLASS_16_BIT = [
    (256, 128, 32, (3,), 4, 2), (128, 256, 32, (3,), 2, 4), (256, 64, 32, (3, 4), 4, 1), (64, 256, 32, (4,), 1, 4),
    (128, 128, 32, (3, 4, 5), 2, 2), (128, 64, 32, (6,), 2, 2), (64, 128, 32, (6,), 2, 2), (64, 64, 32, (10,), 2, 2),
    (256, 128, 64, (3,), 4, 2), (128, 256, 64, (3,), 2, 4), (256, 64, 64, (3, 4), 4, 1), (64, 256, 64, (3, 4), 1, 4),
    (128, 128, 64, (3, 4), 2, 2), (128, 64, 64, (3,), 2, 2), (64, 128, 64, (3,), 2, 2), (64, 64, 64, (5,), 2, 2),
]  # fmt: skip
#: Its alignments of 16-bit operands, in elements, as an extent of K that has no other.
ALIGNED_K = {8: 4096, 4: 4100, 2: 4098}
#: Dao-AILab/quack, `quack/gemm_config.py`, sm80: tile and warps, for tile_k 32 and 64, as it is and swapped.
QUACK = [(128, 128, 4), (128, 128, 8), (128, 192, 8), (128, 256, 8), (128, 64, 4), (64, 128, 4)]
#: More than 64 x 64 a warp: a second set of fragments would spill, so the rule on registers refuses them.
QUACK_TOO_LARGE = [(128, 160, 4), (128, 192, 4)]


def rules_broken(problem: Gemm, device_name: str = A100.name, **knobs: object) -> set[str]:
    said = explain(FAMILY, problem, FAMILY.config(knobs), profile_named(device_name))
    return {entry.rule for entry in said.broken}


def test_the_generator_has_22_tiles() -> None:
    assert sum(len(stages) for *_, stages, _, _ in CUTLASS_16_BIT) == 22


@pytest.mark.parametrize("aligned", ALIGNED_K)
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_every_tile_of_the_generator_is_legal_on_an_a100(layout: str, aligned: int) -> None:
    k = ALIGNED_K[aligned]
    problem = Gemm.of(k, k, k, layout=layout)
    for m, n, tile_k, depths, warps_m, warps_n in CUTLASS_16_BIT:
        for stages in depths:
            found = rules_broken(problem, tile_m=m, tile_n=n, tile_k=tile_k, stages=stages, warps_m=warps_m,
                                 warps_n=warps_n)  # fmt: skip
            assert found == set(), (m, n, tile_k, stages)


@pytest.mark.parametrize("swap_ab", [0, 1])
@pytest.mark.parametrize("tile_k", [32, 64])
def test_quacks_tiles_are_legal_but_those_of_more_sums_than_fit_beside_two_sets_of_fragments(
    tile_k: int, swap_ab: int
) -> None:
    problem = Gemm.parse("4096x4096x4096")
    for tiles, expected in ((QUACK, set()), (QUACK_TOO_LARGE, {"registers.held"})):
        for m, n, warps in tiles:
            split = {"warps_m": 2, "warps_n": warps // 2, "stages": 2, "tile_k": tile_k, "swap_ab": swap_ab}
            found = rules_broken(problem, tile_m=m, tile_n=n, **split)
            assert found - {"registers.finish"} == expected, (m, n, warps)


#: Tile in bf16, and the deepest ring on sm_80 and on sm_86, sm_89 and sm_120a: 166,912 and 101,376 B a block.
STAGES = {(128, 128, 32): (10, 6), (128, 128, 64): (5, 3), (256, 128, 64): (3, 2), (128, 256, 64): (3, 2),
          (64, 64, 64): (10, 6)}  # fmt: skip


@pytest.mark.parametrize("tile", STAGES)
def test_the_deepest_ring_of_each_target(tile: tuple[int, int, int]) -> None:
    m, n, k = tile
    for device, deepest in zip((A100, RTX_3090, RTX_4090, RTX_5090), (0, 1, 1, 1), strict=True):
        stages = STAGES[tile][deepest]
        knobs = {"tile_m": m, "tile_n": n, "tile_k": k, "warps_m": 2, "warps_n": 4}
        assert "smem.capacity" not in rules_broken(Gemm.parse("4096x4096x4096"), device.name, stages=stages, **knobs)
        assert "smem.capacity" in rules_broken(Gemm.parse("4096x4096x4096"), device.name, stages=stages + 1, **knobs)


def test_two_blocks_of_a_multiprocessor_have_half_of_it_each() -> None:
    problem = Gemm.parse("4096x4096x4096")
    assert not rules_broken(problem, stages=5, blocks_per_sm=2)
    assert rules_broken(problem, stages=6, blocks_per_sm=2) == {"smem.resident"}
    assert not rules_broken(problem, RTX_3090.name, stages=3, blocks_per_sm=2)


def test_rings_of_tma_hold_their_mbarriers_too() -> None:
    """`SharedMemory` of mma_sync/shape.cuh: two mbarriers of 8 bytes a stage behind the word of split-K."""
    problem, h200 = Gemm.parse("4096x4096x4096"), profile_named("NVIDIA H200")
    knobs = {"copies": "tma", "tile_m": 128, "tile_n": 256, "tile_k": 128, "warps_m": 2, "warps_n": 4, "stages": 2}
    derived = FAMILY.derive(problem, FAMILY.config(knobs), h200)
    assert derived["shared_memory_bytes"] == 196_736
    assert rules_broken(problem, h200.name, **knobs) == set()
    assert rules_broken(problem, h200.name, **knobs | {"stages": 3}) == {"smem.capacity", "smem.resident"}
