"""The XOR swizzles of shared memory: TMA writes a tile through one, wgmma and tcgen05 read it back through it.

A swizzle XORs some address bits with higher ones, so that the same 16-byte column of consecutive rows lies in
different banks. The hardware does it to the absolute shared-memory address: a tile must begin where the
pattern does, or the descriptor must say where in the pattern it begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from space.errors import LayoutError
from space.instructions.tma import SWIZZLE_SPANS

IntArray = npt.NDArray[np.int64]

#: A core matrix is this many rows of this many bytes. Patterns repeat after as many rows; without a swizzle, 16-byte
#: columns of core matrices lie side by side.
CORE_ROWS: Final = 8
CORE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Swizzle:
    """One mode.

    Attributes:
        name: as users write it.
        bits: how many address bits are changed.
        base: the lowest of them; below it, bytes stay together.
        shift: how far above them lie the bits that they are XORed with.
        span_bytes: longest row that one pattern covers; for `none`, the 16 bytes that are contiguous.

    Source: PTX ISA 9.0 §9.7.15.5.1.2 (wgmma) and §9.7.16.10.6 (tcgen05), "Shared Memory Matrix Layout";
    written there as pictures, in CUTLASS as `Swizzle<bits, base, shift>` (`mma_traits_sm90_gmma.hpp`).
    """

    name: str
    bits: int
    base: int
    shift: int
    span_bytes: int

    @overload
    def apply(self, address: int) -> int: ...
    @overload
    def apply(self, address: IntArray) -> IntArray: ...
    def apply(self, address: int | IntArray) -> int | IntArray:
        """Where the byte lies that a layout without swizzle has at `address`; its own inverse."""
        mask = ((1 << self.bits) - 1) << (self.base + self.shift)
        return address ^ ((address & mask) >> self.shift)

    @property
    def chunk_bytes(self) -> int:
        """Bytes that stay together."""
        return 1 << self.base

    @property
    def pattern_bytes(self) -> int:
        """Bytes after which the pattern repeats: what a tile's start is aligned to."""
        return 1 << (self.base + self.shift + self.bits) if self.bits else self.chunk_bytes

    def base_offset(self, pattern_start: int) -> int:
        """The descriptor field of that name: 0 where the pattern starts at its own alignment.

        Args:
            pattern_start: shared-memory address at which the first pattern of the tile begins.
        """
        return (pattern_start >> 7) & 7 if self.bits and pattern_start % self.pattern_bytes else 0


SWIZZLES: Final[dict[str, Swizzle]] = {
    swizzle.name: swizzle
    for swizzle in (
        Swizzle("128B", 3, 4, 3, 128),
        Swizzle("64B", 2, 4, 3, 64),
        Swizzle("32B", 1, 4, 3, 32),
        Swizzle("none", 0, 4, 3, CORE_BYTES),
        # Blackwell only: 32 bytes stay together, for 32-bit elements that are transposed on the way.
        Swizzle("128B_atom32B", 2, 5, 2, 128),
    )
}


#: The mode whose pattern is longest on Hopper: where its pattern starts, every other one does too.
WIDEST: Final = SWIZZLES["128B"]


@overload
def row_bytes_of(span_bytes: int) -> int: ...
@overload
def row_bytes_of(span_bytes: IntArray) -> IntArray: ...
def row_bytes_of(span_bytes: int | IntArray) -> int | IntArray:
    """Bytes of a tile's row that one box holds, by swizzle span; 0 is no swizzle."""
    return max(span_bytes, CORE_BYTES) if isinstance(span_bytes, int) else np.maximum(span_bytes, CORE_BYTES)


def widest_span(row_bytes: IntArray) -> IntArray:
    """The widest swizzle span that rows of `row_bytes` fill; the narrowest where they fill none."""
    narrowest, *wider = SWIZZLE_SPANS[1:]
    span = np.full_like(row_bytes, narrowest)
    for each in wider:
        span = np.where(row_bytes >= each, each, span)
    return span


@overload
def whole_patterns(rows: int, parts: int = 1) -> bool: ...
@overload
def whole_patterns(rows: IntArray, parts: IntArray) -> npt.NDArray[np.bool_]: ...
def whole_patterns(rows: int | IntArray, parts: int | IntArray = 1) -> bool | npt.NDArray[np.bool_]:
    """Whether each of equal parts of a tile's rows is made of whole swizzle patterns, or of whole core matrices."""
    return rows % (CORE_ROWS * parts) == 0


def swizzle_named(name: str) -> Swizzle:
    """The mode of that name; `128` and `128b` are `128B`.

    Raises:
        LayoutError: no such mode.
    """
    for word, swizzle in SWIZZLES.items():
        if name.strip().lower() in (word.lower(), word.lower().removesuffix("b")):
            return swizzle
    raise LayoutError(f"swizzle {name!r} is unknown: use one of {', '.join(SWIZZLES)}")
