"""Golden values of CUTLASS: how many tiles its generator makes, and how many stages its Hopper GEMMs take."""

from __future__ import annotations

import pytest

from space.arch import ARCHS
from space.explain import explain
from space.family import family_named
from space.instructions.wgmma import wgmma_for
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.unit.space.goldens.cutlass_generator import generated

FAMILY = family_named("sm90_wgmma")
SQUARE = Gemm.of(4096, 4096, 4096)
CAPACITY_BYTES = ARCHS["sm_90a"].smem_per_block_bytes


@pytest.mark.parametrize(
    ("levels", "count"),
    [
        # Levels of N, of instructions per tile and of the cluster, as the three low digits of a global level.
        ((1, 0, 1), 4),
        ((2, 1, 3), 60),
        ((3, 3, 4), 930),
        ((3, 5, 5), 1778),
        # Digits above the highest level add nothing.
        ((9, 9, 9), 1778),
    ],
)
def test_counts_of_the_generator(levels: tuple[int, int, int], count: int) -> None:
    assert len(generated(*levels)) == count


def test_tiles_of_the_highest_level() -> None:
    assert len({kept[:3] for kept in generated(9, 9, 9)}) == 199


def test_the_generator_drops_what_is_legal() -> None:
    # It looks at the cluster's extents where the shared memory of one block decides.
    assert (128, 128, 128, 1, 1) in generated(9, 9, 9)
    assert (128, 128, 128, 2, 2) not in generated(9, 9, 9)
    knobs = {"tile_m": 128, "tile_n": 128, "tile_k": 128, "cluster_m": 2, "cluster_n": 2, "stages": 2}
    assert explain(FAMILY, SQUARE, FAMILY.config(knobs)).broken == ()


#: CuTe DSL, `examples/python/CuTeDSL/cute/hopper/kernel/dense_gemm`: stages without an epilogue buffer of its own,
#: persistent with f16 C, persistent with f32 C.
CUTE_STAGES = {
    (64, 64): (14, 13, 12),
    (64, 128): (9, 8, 8),
    (64, 256): (5, 5, 4),
    (128, 64): (9, 8, 8),
    (128, 128): (7, 6, 6),
    (128, 256): (4, 4, 3),
}
#: Its barriers, and the C buffers of its epilogue.
CUTE_RESERVED_BYTES, CUTE_EPILOGUE_STAGES = 1024, 4


@pytest.mark.parametrize("dtype", ["fp16", "fp8_e4m3"])
@pytest.mark.parametrize("tile", CUTE_STAGES)
def test_the_stage_table_of_cute(tile: tuple[int, int], dtype: str) -> None:
    row = wgmma_for(dtype, dtype, "f32")
    assert row is not None
    stage_bytes = (tile[0] + tile[1]) * 4 * row.k * DTYPE_BYTES[dtype]
    stages = [(CAPACITY_BYTES - CUTE_RESERVED_BYTES - epilogue) // stage_bytes
              for epilogue in (0, _cute_epilogue_bytes(tile, 2), _cute_epilogue_bytes(tile, 4))]  # fmt: skip
    assert tuple(stages) == CUTE_STAGES[tile]


def _cute_epilogue_bytes(tile: tuple[int, int], c_bytes: int) -> int:
    cooperative = tile[0] > 64 and tile[1] > 128
    return CUTE_EPILOGUE_STAGES * min(128 if cooperative else 64, tile[0]) * min(32, tile[1]) * c_bytes


@pytest.mark.parametrize("tile", CUTE_STAGES)
def test_our_ring_is_as_deep_where_c_takes_no_shared_memory(tile: tuple[int, int]) -> None:
    def overflows(stages: int) -> bool:
        knobs = {"tile_m": tile[0], "tile_n": tile[1], "tile_k": 64, "consumer_warpgroups": tile[0] // 64,
                 "epilogue": "direct", "stages": stages}  # fmt: skip
        return "smem.capacity" in [entry.rule for entry in explain(FAMILY, SQUARE, FAMILY.config(knobs)).broken]

    deepest = CUTE_STAGES[tile][0]
    assert not overflows(deepest)
    assert overflows(deepest + 1)


@pytest.mark.parametrize(
    ("tile", "stages"),
    [
        # CUTLASS C++ builder (`sm90_gmma_builder.inl`): with nothing, 32 KiB and 64 KiB kept for the epilogue.
        ((128, 128, 64), (7, 6, 5)),
        ((128, 256, 64), (4, 4, 3)),
        ((256, 256, 64), (3, 3, 2)),
        ((128, 256, 128), (2, 2, 1)),
    ],
)
def test_stages_of_the_builder(tile: tuple[int, int, int], stages: tuple[int, int, int]) -> None:
    def aligned(size: int) -> int:
        return -(-size // 128) * 128

    barriers = 16
    stage_bytes = aligned((tile[0] + tile[1]) * tile[2] * 2) + barriers
    assert tuple((CAPACITY_BYTES - aligned(kept)) // stage_bytes for kept in (0, 32 << 10, 64 << 10)) == stages
