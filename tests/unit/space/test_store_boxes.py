"""Boxes of TMA stores of C: whole columns of the tile, as wide as possible, and legal for the driver."""

from __future__ import annotations

import pytest

from space.explain import explain, is_legal
from space.families.sm90_wgmma.derive import STORE_BOX_BYTES
from space.instructions.tma import SWIZZLE_SPANS
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.support import FAMILY
from tests.tensor_maps import TensorMap


@pytest.mark.parametrize("dtype", ["bf16", "bf16,bf16,f32,f32", "int8,int8,bf16,s32"])
@pytest.mark.parametrize("epilogue", ["tma", "tma_half"])
def test_every_tile_is_written_by_boxes_that_the_driver_takes(dtype: str, epilogue: str) -> None:
    problem = Gemm.of(4096, 4096, 4096, dtype)
    size, legal = DTYPE_BYTES[problem.dtype_c], 0
    for tile_n in range(8, 257, 8):
        depth = 128 // DTYPE_BYTES[problem.dtype_a]
        config = FAMILY.config({"tile_n": tile_n, "epilogue": epilogue, "stages": 2, "tile_k": depth})
        if not is_legal(FAMILY, problem, config):
            continue
        legal += 1
        derived = FAMILY.derive(problem, config)
        staged, columns = derived["staged_columns"], derived["store_box_n"]
        assert staged % columns == 0
        better = [width for width in STORE_BOX_BYTES if staged * size % width == 0]
        assert columns * size == (better[0] if better else staged * size)
        row = problem.n * size
        rows = config.number("tile_m") // derived["team"]
        swizzle = columns * size if columns * size in SWIZZLE_SPANS else 0
        stored = TensorMap(0, size, (problem.n, problem.m, 1), (row, row * problem.m), (columns, rows, 1), swizzle)
        assert stored.broken() == ()
    assert legal >= 8


@pytest.mark.parametrize(("tile_n", "half"), [(208, 104), (200, 104), (168, 88), (40, 24), (8, 8)])
def test_halves_of_an_odd_number_of_eights_overlap_in_one(tile_n: int, half: int) -> None:
    problem = Gemm.of(4096, 4096, 4096)
    config = FAMILY.config({"tile_n": tile_n, "epilogue": "tma_half", "stages": 2})
    assert FAMILY.derive(problem, config)["staged_columns"] == half


def test_halves_that_overlap_write_no_c_that_is_read() -> None:
    config = FAMILY.config({"tile_n": 40, "epilogue": "tma_half", "stages": 2})
    assert is_legal(FAMILY, Gemm.of(4096, 4096, 4096, epilogue="alpha+bias+relu"), config)
    said = explain(FAMILY, Gemm.of(4096, 4096, 4096, epilogue="alpha+beta"), config)
    assert [entry.rule for entry in said.broken] == ["epilogue.half"]
