"""Box plans: golden counts, every element at one place, and tiles that TMA refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from space.elements import element_bytes
from space.errors import LayoutError
from space.layouts.boxes import plan_boxes
from space.layouts.swizzle import SWIZZLES, swizzle_named

#: (rows, columns, dtype, swizzle, boxes, columns of a box)
GOLDEN = [
    # One box of a 64-element line each: the common operand tile.
    (128, 64, "bf16", "128B", 1, 64),
    # tile_k = 128 of bf16 is 256 B, two spans.
    (128, 128, "bf16", "128B", 2, 64),
    # N-major B of 256 columns: four spans, whatever K is.
    (64, 256, "bf16", "128B", 4, 64),
    # A box has at most 256 rows.
    (257, 64, "bf16", "128B", 2, 64),
    (512, 128, "bf16", "128B", 4, 64),
    # 128 B rows may be split for narrower swizzles; they need not be 128B.
    (128, 64, "bf16", "64B", 2, 32),
    (128, 64, "bf16", "32B", 4, 16),
    # 32-byte rows are a 32B tile, not a 128B one.
    (64, 16, "bf16", "32B", 1, 16),
    (128, 128, "fp8_e4m3", "128B", 1, 128),
    (128, 32, "tf32", "128B", 1, 32),
    (64, 64, "bf16", "none", 8, 8),
]


@pytest.mark.parametrize(("rows", "columns", "dtype", "swizzle", "count", "wide"), GOLDEN)
def test_golden_plans(rows: int, columns: int, dtype: str, swizzle: str, count: int, wide: int) -> None:
    plan = plan_boxes(rows, columns, dtype, SWIZZLES[swizzle])
    assert (len(plan.boxes), plan.box_columns) == (count, wide)
    assert sum(box.rows * box.columns for box in plan.boxes) == rows * columns
    assert all(box.rows <= 256 and box.columns <= 256 for box in plan.boxes)


tiles = st.tuples(
    st.integers(1, 300),
    st.integers(1, 6),
    st.sampled_from(["bf16", "fp8_e4m3", "tf32"]),
    st.sampled_from(["128B", "64B", "32B", "none"]),
)


@given(tiles)
def test_every_element_has_one_place_and_boxes_hold_it(tile: tuple[int, int, str, str]) -> None:
    rows, spans, dtype, name = tile
    swizzle, size = SWIZZLES[name], element_bytes(dtype)
    columns = spans * swizzle.span_bytes // size
    assume(rows * columns * size < 2**18)
    plan = plan_boxes(rows, columns, dtype, swizzle)
    row, column = np.indices((rows, columns), dtype=np.int64)
    offsets = plan.offset(row, column)
    assert len(np.unique(offsets)) == rows * columns
    assert (offsets % size == 0).all()
    assert offsets.min() >= 0
    assert offsets.max() + size <= plan.smem_bytes
    for box in plan.boxes:
        assert box.smem_offset_bytes % 128 == 0
        assert swizzle.apply(plan.offset(box.row, box.column)) == box.smem_offset_bytes


def test_each_column_of_boxes_begins_with_a_pattern() -> None:
    plan = plan_boxes(60, 128, "bf16", SWIZZLES["128B"])
    assert 60 * 128 % 1024 != 0
    assert [box.smem_offset_bytes % 1024 for box in plan.boxes] == [0, 0]
    assert plan.smem_bytes == 2 * 8 * 1024


def test_a_single_column_of_boxes_takes_its_rows_and_no_more() -> None:
    plan = plan_boxes(60, 64, "bf16", SWIZZLES["128B"])
    assert (plan.smem_bytes, plan.alignment_bytes) == (60 * 128, 1024)
    assert plan_boxes(60, 8, "bf16", SWIZZLES["none"]).alignment_bytes == 128


def test_a_tile_that_one_barrier_can_not_count_is_refused_by_a_byte() -> None:
    assert plan_boxes(4096 - 8, 128, "bf16", SWIZZLES["128B"]).smem_bytes == 2**20 - 2048
    with pytest.raises(LayoutError, match="1,048,576 B > 1,048,575 B"):
        plan_boxes(4096, 128, "bf16", SWIZZLES["128B"])


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "swizzle", "wide", "said"),
    [
        (0, 64, "bf16", "128B", None, "rows = 0"),
        (64, -1, "bf16", "128B", None, "columns = -1"),
        (64, 64, "bf17", "128B", None, "'bf17' is unknown"),
        (64, 64, "fp4_e2m1", "128B", None, "whole bytes"),
        (64, 96, "bf16", "128B", None, "use 128 columns"),
        (64, 64, "bf16", "64B", 64, "wider than the"),
        (64, 64, "bf16", "64B", 64, "or 128B"),
        (64, 64, "bf16", "128B", 32, "narrower than the 128 B rows"),
        (64, 512, "bf16", "none", 512, "boxDim"),
        (64, 12, "bf16", "none", 4, "multiples of 16 B; make it a multiple of 8"),
        (64, 64, "bf16", "none", 0, "0 B wide"),
        (4096, 256, "bf16", "128B", None, "1,048,575 B"),
    ],
)
def test_what_tma_can_not_bring_is_told_with_the_fix(
    rows: int, columns: int, dtype: str, swizzle: str, wide: int | None, said: str
) -> None:
    with pytest.raises(LayoutError, match=said):
        plan_boxes(rows, columns, dtype, swizzle_named(swizzle), wide)
