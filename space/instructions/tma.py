"""`cp.async.bulk.tensor`: which tensor maps the driver encodes.

The limits are those of `cuTensorMapEncodeTiled` (CUDA driver API, "Tensor Map Object Management"), without
interleaving, which no GEMM here uses. A tensor map that breaks one is refused by the driver at run time with
`CUDA_ERROR_INVALID_VALUE` and no word on which, hence the sentences here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SOURCE: Final = "CUDA driver API, cuTensorMapEncodeTiled"
#: The map itself lies at a multiple of this, in parameters, constant or global memory.
MAP_ALIGN_BYTES: Final = 64
MOST_RANK: Final = 5
ADDRESS_STEP_BYTES: Final = 16
MOST_EXTENT: Final = 2**32
STRIDE_STEP_BYTES: Final = 16
#: Strides are below this.
STRIDE_END_BYTES: Final = 2**40
MOST_BOX_EXTENT: Final = 256
#: The innermost extent of a box is a multiple of this.
BOX_STEP_BYTES: Final = 16
MOST_ELEMENT_STRIDE: Final = 8
#: Where a box may begin in shared memory (PTX ISA 9.0, cp.async.bulk.tensor).
SMEM_STEP_BYTES: Final = 128
#: Blocks of a cluster that one multicast may name: the bits of its mask (same source).
MOST_MULTICAST: Final = 16
#: Swizzle spans in bytes; 0 is no swizzle.
SWIZZLE_SPANS: Final = (0, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What `cuTensorMapEncodeTiled` is given; innermost dimension first.

    Attributes:
        address: of the tensor in global memory.
        element_bytes: 1, 2, 4 or 8.
        extents: elements in each dimension.
        strides_bytes: from one element to the next in each dimension but the innermost, which is contiguous.
        box: elements of one copy in each dimension.
        swizzle_bytes: one of `SWIZZLE_SPANS`.
        element_strides: steps between the elements that are copied; empty for 1. The driver's
            documentation calls the first one ignored.
    """

    address: int
    element_bytes: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    element_strides: tuple[int, ...] = ()

    def broken(self) -> tuple[str, ...]:
        """Every limit that is broken, as a sentence with its numbers and the fix; empty where the driver encodes it."""
        rank = len(self.extents)
        if not 1 <= rank <= MOST_RANK:
            return (f"rank {rank} is outside 1 to {MOST_RANK}: fold dimensions that are contiguous",)
        steps = self.element_strides or (1,) * rank
        lengths = {"strides_bytes": (len(self.strides_bytes), rank - 1), "box": (len(self.box), rank),
                   "element_strides": (len(steps), rank)}  # fmt: skip
        said = [f"{name} has {has} entries: rank {rank} needs {needs}" for name, (has, needs) in lengths.items()
                if has != needs]  # fmt: skip
        if said:
            return tuple(said)
        return (
            *self._address(),
            *_outside("extent", self.extents, MOST_EXTENT, "split the tensor"),
            *self._strides(),
            *_outside("box extent", self.box, MOST_BOX_EXTENT, "cut the tile into boxes"),
            *self._box_row(),
            *_outside("element stride", steps, MOST_ELEMENT_STRIDE, "gather in the kernel"),
        )

    def _address(self) -> Iterator[str]:
        if self.address % ADDRESS_STEP_BYTES:
            yield f"address {self.address:#x} is no multiple of {ADDRESS_STEP_BYTES} B: align the operand"

    def _strides(self) -> Iterator[str]:
        for place, stride in enumerate(self.strides_bytes, start=1):
            if past := stride % STRIDE_STEP_BYTES:
                yield (
                    f"stride {stride:,} B of dimension {place} is {past} B past a multiple of {STRIDE_STEP_BYTES}: "
                    f"pad the leading dimension"
                )
            if not 0 <= stride < STRIDE_END_BYTES:
                yield f"stride {stride:,} B of dimension {place} is not below 2^40: split the tensor"

    def _box_row(self) -> Iterator[str]:
        row_bytes = self.box[0] * self.element_bytes
        if row_bytes % BOX_STEP_BYTES:
            yield (
                f"box rows of {row_bytes} B are no multiple of {BOX_STEP_BYTES}: take a multiple of "
                f"{BOX_STEP_BYTES // self.element_bytes} elements"
            )
        if self.swizzle_bytes not in SWIZZLE_SPANS:
            yield f"swizzle {self.swizzle_bytes} B is unknown: use one of {', '.join(map(str, SWIZZLE_SPANS))}"
        elif 0 < self.swizzle_bytes < row_bytes:
            yield (
                f"box rows of {row_bytes} B exceed the {self.swizzle_bytes}-byte swizzle span: take boxes of "
                f"{self.swizzle_bytes // self.element_bytes} elements"
            )


def _outside(what: str, values: tuple[int, ...], most: int, fix: str) -> Iterator[str]:
    for place, value in enumerate(values):
        if not 1 <= value <= most:
            yield f"{what} {value:,} of dimension {place} is outside 1 to {most:,}: {fix}"
