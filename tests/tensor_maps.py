"""Which tensor maps the driver encodes: every limit of `cuTensorMapEncodeTiled` as a condition on a map.

At run time, the driver refuses a map that breaks one with `CUDA_ERROR_INVALID_VALUE` and does not say which;
`TensorMap.broken` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from space.instructions.tma import (
    ADDRESS_STEP_BYTES,
    BOX_STEP_BYTES,
    MAX_BOX_EXTENT,
    SOURCE,
    STRIDE_STEP_BYTES,
    SWIZZLE_SPANS,
    stride_gap_bytes,
)

MAX_RANK: Final = 5
MAX_EXTENT: Final = 2**32
#: Strides must be below this.
STRIDE_END_BYTES: Final = 2**40
MAX_ELEMENT_STRIDE: Final = 8
#: Most bytes of one copy: the shared memory of an SM, with the part that the driver reserves.
MAX_BOX_BYTES: Final = 228 * 1024
#: Source of limits that the documentation does not state.
OBSERVED: Final = "observed on driver 580.159.04 by tests/gpu/test_tensor_map_limits.py"


@dataclass(frozen=True, slots=True)
class Limit:
    """One condition that the driver sets for a tensor map.

    Attributes:
        id: `tensor_map.subject`, stable.
        sentence: the condition in words.
        source: where it is documented, or what showed it.
    """

    id: str
    sentence: str
    source: str = SOURCE


LIMITS: Final = (
    Limit("tensor_map.rank", f"a tensor has 1 to {MAX_RANK} dimensions"),
    Limit("tensor_map.lengths", "strides have one entry per dimension but the first, other arrays one per dimension"),
    Limit("tensor_map.address", f"the tensor starts at a multiple of {ADDRESS_STEP_BYTES} B"),
    Limit("tensor_map.extent", "extents are 1 to 2^32"),
    Limit("tensor_map.stride", f"strides are multiples of {STRIDE_STEP_BYTES} B below 2^40 B"),
    Limit("tensor_map.strides_array", "the array of strides is not null, even at rank 1, where it is not read",
          OBSERVED),
    Limit("tensor_map.box_extent", f"box extents are 1 to {MAX_BOX_EXTENT}"),
    Limit("tensor_map.box_row", f"box rows are multiples of {BOX_STEP_BYTES} B"),
    Limit("tensor_map.box_bytes", f"the elements that a box copies, without those that element strides skip, take at "
          f"most {MAX_BOX_BYTES:,} B", OBSERVED),
    Limit("tensor_map.swizzle", "a swizzle spans 0, 32, 64 or 128 B, and box rows fit its span"),
    Limit("tensor_map.element_stride", f"element strides are 1 to {MAX_ELEMENT_STRIDE}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The arguments of `cuTensorMapEncodeTiled`, innermost dimension first.

    Attributes:
        address: address of the tensor in global memory.
        element_bytes: 1, 2, 4 or 8.
        extents: elements in each dimension.
        strides_bytes: bytes between neighbours in each dimension but the innermost, which is contiguous.
        box: elements of one copy in each dimension.
        swizzle_bytes: one of `SWIZZLE_SPANS`.
        element_strides: steps between the copied elements in each dimension; empty for 1. According to the
            documentation, the driver ignores the first.

    No map breaks `tensor_map.strides_array`, which is about the call.
    """

    address: int
    element_bytes: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    element_strides: tuple[int, ...] = ()

    def broken(self) -> tuple[str, ...]:
        """Every broken limit, with its id, the numbers and the fix; empty if the driver encodes the map."""
        return tuple(f"tensor_map.{subject}: {said}" for subject, said in self._broken())

    def _broken(self) -> Iterable[tuple[str, str]]:
        rank = len(self.extents)
        if not 1 <= rank <= MAX_RANK:
            return [("rank", f"rank {rank} is outside 1 to {MAX_RANK}: merge contiguous dimensions")]
        steps = self.element_strides or (1,) * rank
        lengths = {"strides_bytes": (len(self.strides_bytes), rank - 1), "box": (len(self.box), rank),
                   "element_strides": (len(steps), rank)}  # fmt: skip
        wrong = [("lengths", f"{name} has {has} entries: rank {rank} needs {needs}")
                 for name, (has, needs) in lengths.items() if has != needs]  # fmt: skip
        return wrong or chain(
            self._address(),
            _outside("extent", self.extents, MAX_EXTENT, "split the tensor"),
            self._strides(),
            _outside("box extent", self.box, MAX_BOX_EXTENT, "cut the tile into boxes"),
            self._box_row(),
            self._box_bytes(steps),
            _outside("element stride", steps, MAX_ELEMENT_STRIDE, "gather in the kernel"),
        )

    def _address(self) -> Iterator[tuple[str, str]]:
        if self.address % ADDRESS_STEP_BYTES:
            yield "address", f"address {self.address:#x} is not a multiple of {ADDRESS_STEP_BYTES} B: align the operand"

    def _strides(self) -> Iterator[tuple[str, str]]:
        for place, stride in enumerate(self.strides_bytes, start=1):
            named = f"stride {stride:,} B of dimension {place}"
            if past := stride_gap_bytes(stride):
                multiple = f"{past} B past a multiple of {STRIDE_STEP_BYTES}"
                yield "stride", f"{named} is {multiple}: pad the leading dimension"
            if not 0 <= stride < STRIDE_END_BYTES:
                yield "stride", f"{named} is not below 2^40: split the tensor"

    def _box_row(self) -> Iterator[tuple[str, str]]:
        row_bytes, span = self.box[0] * self.element_bytes, self.swizzle_bytes
        if row_bytes % BOX_STEP_BYTES:
            step = BOX_STEP_BYTES // self.element_bytes
            yield "box_row", (
                f"box rows of {row_bytes} B are not a multiple of {BOX_STEP_BYTES}: take a multiple of {step} elements"
            )
        if span not in SWIZZLE_SPANS:
            yield "swizzle", f"swizzle {span} B is unknown: use one of {', '.join(map(str, SWIZZLE_SPANS))}"
        elif 0 < span < row_bytes:
            yield "swizzle", (
                f"box rows of {row_bytes} B exceed the {span}-byte swizzle span: take boxes of "
                f"{span // self.element_bytes} elements"
            )

    def _box_bytes(self, steps: tuple[int, ...]) -> Iterator[tuple[str, str]]:
        # The driver rounds down: an extent below its element stride counts as none, and makes the whole box empty.
        copied = [extent // max(step, 1) for extent, step in zip(self.box, steps, strict=True)]
        box_bytes = math.prod(copied) * self.element_bytes
        if box_bytes > MAX_BOX_BYTES:
            yield "box_bytes", (
                f"a box of {'·'.join(map(str, copied))} elements of {self.element_bytes} B is {box_bytes:,} B > "
                f"{MAX_BOX_BYTES:,} B: cut the tile into boxes"
            )


def _outside(what: str, values: tuple[int, ...], most: int, fix: str) -> Iterator[tuple[str, str]]:
    for place, value in enumerate(values):
        if not 1 <= value <= most:
            yield what.replace(" ", "_"), f"{what} {value:,} of dimension {place} is outside 1 to {most:,}: {fix}"
