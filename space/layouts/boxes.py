"""TMA box plans: how a tile is cut into boxes, and where each of its elements is in shared memory.

A swizzled box is at most one swizzle span wide, and no box has more than 256 elements in a dimension, so larger tiles
take several boxes. These are stored one after another, column of boxes by column of boxes: within such a column, rows
continue across boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from space.elements import element_bytes
from space.errors import LayoutError
from space.instructions.tma import BOX_STEP_BYTES, MAX_BOX_EXTENT, MAX_TRANSACTION_BYTES, SMEM_STEP_BYTES
from space.layouts.swizzle import SWIZZLES, IntArray, Ints, Swizzle


@dataclass(frozen=True, slots=True)
class Box:
    """One TMA load: `columns` x `rows` elements at (`column`, `row`) of the tile, to `smem_offset_bytes`."""

    column: int
    row: int
    columns: int
    rows: int
    smem_offset_bytes: int


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """A tile cut into boxes.

    Attributes:
        rows, columns: extents of the tile in elements; neighbours in a row are contiguous in global memory.
        element_bytes: bytes of one element.
        swizzle: mode of the tensor map.
        box_columns: elements of a full box along the contiguous dimension.
    """

    rows: int
    columns: int
    element_bytes: int
    swizzle: Swizzle
    box_columns: int

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one row to the next in shared memory."""
        return self.box_columns * self.element_bytes

    @property
    def alignment_bytes(self) -> int:
        """Alignment of the tile in shared memory."""
        return max(self.swizzle.pattern_bytes, SMEM_STEP_BYTES)

    @property
    def column_stride_bytes(self) -> int:
        """Bytes from one column of boxes to the next; each column starts with a swizzle pattern."""
        size = self.rows * self.pitch_bytes
        return -(-size // self.alignment_bytes) * self.alignment_bytes if self.columns > self.box_columns else size

    @property
    def smem_bytes(self) -> int:
        """Bytes of shared memory of the tile."""
        return boxes_across(self.columns * self.element_bytes, self.pitch_bytes) * self.column_stride_bytes

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes in the order of shared memory."""
        return tuple(
            Box(column, row, self.box_columns, min(MAX_BOX_EXTENT, self.rows - row),
                column // self.box_columns * self.column_stride_bytes + row * self.pitch_bytes)
            for column in range(0, self.columns, self.box_columns)
            for row in range(0, self.rows, MAX_BOX_EXTENT)
        )  # fmt: skip

    def offset(self, row: Ints, column: Ints) -> Ints:
        """Byte offset of an element from the aligned start of the tile in shared memory."""
        across, within = column // self.box_columns, column % self.box_columns
        linear = across * self.column_stride_bytes + row * self.pitch_bytes + within * self.element_bytes
        return self.swizzle.apply(linear)


def boxes_across(row_bytes: Ints, box_bytes: Ints) -> Ints:
    """Number of boxes side by side that cover rows of `row_bytes`; the last may reach past the rows."""
    return -(-row_bytes // box_bytes)


def whole_boxes(row_bytes: IntArray, box_bytes: IntArray) -> npt.NDArray[np.bool_]:
    """Whether boxes side by side cover rows of `row_bytes` exactly."""
    whole: npt.NDArray[np.bool_] = row_bytes % box_bytes == 0
    return whole


def plan_boxes(rows: int, columns: int, dtype: str, swizzle: Swizzle, box_columns: int | None = None) -> BoxPlan:
    """The plan with the fewest boxes for a tile.

    Args:
        rows, columns: extents of the tile in elements; neighbours in a row are contiguous in global memory.
        box_columns: elements of a box along the contiguous dimension. The default is the span of the swizzle, or 16
            bytes without one: the layout that wgmma and tcgen05 read.

    Raises:
        LayoutError: TMA cannot load a tile this way.
    """
    size = element_bytes(dtype)
    for name, value in (("rows", rows), ("columns", columns)):
        if value < 1:
            raise LayoutError(f"{name} = {value}: a tile has at least one; give a positive integer")
    wide = swizzle.span_bytes // size if box_columns is None else box_columns
    _check_box(columns, wide, size, swizzle, dtype)
    plan = BoxPlan(rows, columns, size, swizzle, wide)
    moved = rows * columns * size
    if moved > MAX_TRANSACTION_BYTES:
        raise LayoutError(
            f"{rows}·{columns}·{size} B = {moved:,} B > {MAX_TRANSACTION_BYTES:,} B, the most of one mbarrier: "
            f"use a smaller tile, or one barrier per part"
        )
    return plan


def _check_box(columns: int, wide: int, size: int, swizzle: Swizzle, dtype: str) -> None:
    row_bytes = wide * size
    if wide < 1 or row_bytes % BOX_STEP_BYTES:
        raise LayoutError(
            f"a box of {wide} {dtype} is {row_bytes} B wide: TMA copies multiples of {BOX_STEP_BYTES} B; "
            f"make it a multiple of {BOX_STEP_BYTES // size} elements"
        )
    if wide > MAX_BOX_EXTENT:
        raise LayoutError(
            f"a box of {wide} elements is wider than {MAX_BOX_EXTENT}, the most that boxDim takes: "
            f"cut the tile into boxes of {MAX_BOX_EXTENT}"
        )
    if swizzle.bits and row_bytes != swizzle.span_bytes:
        how = "wider than" if row_bytes > swizzle.span_bytes else "narrower than"
        fits = [name for name, mode in SWIZZLES.items() if mode.bits and mode.span_bytes == row_bytes]
        raise LayoutError(
            f"a box of {wide} {dtype} is {row_bytes} B wide, {how} the {swizzle.span_bytes} B rows that {swizzle.name} "
            f"swizzles: use boxes of {swizzle.span_bytes // size} elements" + (f", or {fits[0]}" if fits else "")
        )
    if columns % wide:
        raise LayoutError(
            f"{columns} columns are not a whole number of boxes of {wide} {dtype} ({row_bytes} B, {swizzle.name}): "
            f"use {-(-columns // wide) * wide} columns, or a narrower swizzle"
        )
