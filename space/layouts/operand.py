"""Operand tiles in shared memory: the strides by which wgmma and tcgen05 read what TMA has written.

The two byte offsets of a descriptor mean different steps in each canonical layout:

    major  swizzle   leading byte offset              stride byte offset
    K      yes       ignored; 1 by convention         from 8 rows to the next 8
    K      none      from one 16 B column to the next from 8 rows to the next 8
    MN     yes       from one span of M or N to next  from 8 of K to the next 8
    MN     none      from 8 of K to the next 8        from one 16 B of M or N to the next: the roles swap

Sources: PTX ISA 9.0 §9.7.15.5.1.2.1, "Major-ness supported by Strides"; CUTLASS,
`include/cute/atom/mma_traits_sm90_gmma.hpp`, canonical layouts of `make_gmma_desc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from space.arch import WORD_BYTES
from space.elements import element_bytes
from space.errors import LayoutError
from space.instructions.operand import Major
from space.instructions.wgmma import K_BYTES
from space.layouts.boxes import BoxPlan, plan_boxes
from space.layouts.descriptor import MatrixDescriptor, Tcgen05Descriptor, WgmmaDescriptor
from space.layouts.swizzle import CORE_BYTES, CORE_ROWS, Ints, Swizzle

#: Value of a leading byte offset that the hardware ignores.
UNREAD_LEADING_BYTES: Final = 16

Descriptor = TypeVar("Descriptor", bound=MatrixDescriptor)


@dataclass(frozen=True, slots=True)
class Strides:
    """The two byte offsets of a descriptor."""

    leading_bytes: int
    stride_bytes: int


@dataclass(frozen=True, slots=True)
class OperandTile:
    """One tile of A (M x K) or B (N x K).

    Attributes:
        mn: extent along M or N.
        k: extent along K.
        dtype: dtype of the elements.
        major: `k` if K is contiguous, `mn` if M or N is.
        swizzle: mode of both the tensor map and the descriptor.

    Raises:
        LayoutError: no canonical layout fits the tile.
    """

    mn: int
    k: int
    dtype: str
    major: Major
    swizzle: Swizzle

    def __post_init__(self) -> None:
        if self.major not in ("k", "mn"):
            raise LayoutError(f"major {self.major!r} is unknown: use k or mn")
        if self.major == "mn" and element_bytes(self.dtype) == WORD_BYTES:
            raise LayoutError(
                f"wgmma does not read MN-major {self.dtype}, and tcgen05 only with 128B_atom32B, whose strides are not "
                f"described here: store it with K contiguous"
            )
        if self.swizzle.chunk_bytes != CORE_BYTES:
            raise LayoutError(
                f"swizzle {self.swizzle.name} keeps {self.swizzle.chunk_bytes} B together, and its strides are not "
                f"described here: use 128B, 64B, 32B or none"
            )
        name, rows = ("mn", self.mn) if self.major == "k" else ("k", self.k)
        if rows % CORE_ROWS:
            raise LayoutError(
                f"{name} = {rows} rows are not whole core matrices of {CORE_ROWS} rows: "
                f"use {-(-rows // CORE_ROWS) * CORE_ROWS}"
            )
        _ = self.plan

    @property
    def plan(self) -> BoxPlan:
        """The boxes by which TMA loads the tile."""
        if self.major == "k":
            return plan_boxes(self.mn, self.k, self.dtype, self.swizzle)
        return plan_boxes(self.k, self.mn, self.dtype, self.swizzle)

    @property
    def strides(self) -> Strides:
        """Strides of every descriptor of this tile, wherever it starts."""
        rows = CORE_ROWS * self.swizzle.span_bytes
        if self.major == "k" and self.swizzle.bits:
            return Strides(UNREAD_LEADING_BYTES, rows)
        across = self.plan.column_stride_bytes
        return Strides(rows, across) if self.major == "mn" and not self.swizzle.bits else Strides(across, rows)

    def offset(self, mn: Ints, k: Ints) -> Ints:
        """Byte offset of an element from the aligned start of the tile."""
        return self.plan.offset(mn, k) if self.major == "k" else self.plan.offset(k, mn)

    def start(self, mn: int, k: int) -> int:
        """Byte offset, before swizzling, of the block at (`mn`, `k`): the start address of its descriptor.

        Raises:
            LayoutError: no descriptor can start there.
        """
        span = self.swizzle.span_bytes // element_bytes(self.dtype)
        step_mn, step_k = (CORE_ROWS, CORE_BYTES // element_bytes(self.dtype))
        if self.major == "mn":
            step_mn, step_k = span, CORE_ROWS
        for name, value, step, extent in (("mn", mn, step_mn, self.mn), ("k", k, step_k, self.k)):
            if value % step or not 0 <= value < extent:
                raise LayoutError(
                    f"no descriptor starts at {name} = {value}: use a multiple of {step} below {extent} "
                    f"({self.major}-major {self.dtype}, {self.swizzle.name})"
                )
        reads = K_BYTES // element_bytes(self.dtype)
        end = k // span * span + span if self.major == "k" and self.swizzle.bits else self.k
        if k + reads > end:
            raise LayoutError(
                f"no descriptor starts at k = {k}: one instruction reads {K_BYTES} B of K, {reads} {self.dtype}, past "
                f"the end of the {'swizzle span' if end < self.k else 'tile'} at k = {end}; "
                + (f"start at {end - reads} or earlier" if end >= reads else f"give the tile {reads} of K or more")
            )
        row, column = (mn, k) if self.major == "k" else (k, mn)
        plan = self.plan
        return (
            column // span * plan.column_stride_bytes
            + row * plan.pitch_bytes
            + column % span * element_bytes(self.dtype)
        )

    def wgmma_descriptor(self, address: int = 0, mn: int = 0, k: int = 0) -> WgmmaDescriptor:
        """Descriptor of the block at (`mn`, `k`) of a tile at `address`.

        Raises:
            LayoutError: the address is not aligned, no descriptor starts there, or wgmma cannot read the tile.
        """
        if self.major == "mn" and element_bytes(self.dtype) != 2:
            raise LayoutError(
                f"wgmma reads {self.dtype} K-major only, as it transposes only 16-bit types: store it with K contiguous"
            )
        return self._descriptor(WgmmaDescriptor, address, mn, k)

    def tcgen05_descriptor(self, address: int = 0, mn: int = 0, k: int = 0) -> Tcgen05Descriptor:
        """The same for tcgen05.

        Raises:
            LayoutError: the address is not aligned, or no descriptor starts there.
        """
        return self._descriptor(Tcgen05Descriptor, address, mn, k)

    def _descriptor(self, kind: type[Descriptor], address: int, mn: int, k: int) -> Descriptor:
        if address % self.plan.alignment_bytes:
            raise LayoutError(
                f"a tile at {address:#x} starts inside a swizzle pattern: {self.swizzle.name} needs a multiple of "
                f"{self.plan.alignment_bytes} B, because the hardware swizzles absolute addresses"
            )
        strides = self.strides
        return kind(address + self.start(mn, k), strides.leading_bytes, strides.stride_bytes, self.swizzle)
