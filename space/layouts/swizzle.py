"""The XOR swizzles of shared memory: TMA writes a tile through one; wgmma and tcgen05 read it back through it.

A swizzle XORs some address bits with higher ones, so that the same 16-byte column of consecutive rows falls into
different banks. The hardware swizzles absolute shared-memory addresses: a tile must start where the pattern starts, or
the descriptor must say where in the pattern it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from space.errors import LayoutError
from space.instructions.tma import SWIZZLE_SPANS

IntArray = npt.NDArray[np.int64]
#: One number, or one of each row.
Ints = TypeVar("Ints", int, IntArray)

#: A core matrix is this many rows of this many bytes. Swizzle patterns repeat after as many rows; without a swizzle, a
#: tile is made of columns of core matrices.
CORE_ROWS: Final = 8
CORE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Swizzle:
    """One swizzle mode.

    Attributes:
        name: as users write it.
        bits: number of address bits that change.
        base: the lowest of these bits; the bytes below it stay together.
        shift: distance to the higher bits that they are XORed with.
        span_bytes: longest row that one pattern covers; for `none`, the 16 contiguous bytes.

    Source: PTX ISA 9.0 §9.7.15.5.1.2 (wgmma) and §9.7.16.10.6 (tcgen05), "Shared Memory Matrix Layout", as pictures;
    CUTLASS as `Swizzle<bits, base, shift>` (`mma_traits_sm90_gmma.hpp`).
    """

    name: str
    bits: int
    base: int
    shift: int
    span_bytes: int

    def apply(self, address: Ints) -> Ints:
        """The swizzled address of the byte that is at `address` without a swizzle; its own inverse."""
        mask = ((1 << self.bits) - 1) << (self.base + self.shift)
        return address ^ ((address & mask) >> self.shift)

    @property
    def chunk_bytes(self) -> int:
        """Contiguous bytes that the swizzle keeps together."""
        return 1 << self.base

    @property
    def pattern_bytes(self) -> int:
        """Bytes after which the pattern repeats; tiles start at multiples of it."""
        return 1 << (self.base + self.shift + self.bits) if self.bits else self.chunk_bytes

    def base_offset(self, pattern_start: int) -> int:
        """The descriptor's `base_offset` field: 0 if the pattern starts at its own alignment.

        Args:
            pattern_start: shared-memory address of the first pattern of the tile.
        """
        return (pattern_start >> 7) & 7 if self.bits and pattern_start % self.pattern_bytes else 0


SWIZZLES: Final[dict[str, Swizzle]] = {
    swizzle.name: swizzle
    for swizzle in (
        Swizzle("128B", 3, 4, 3, 128),
        Swizzle("64B", 2, 4, 3, 64),
        Swizzle("32B", 1, 4, 3, 32),
        Swizzle("none", 0, 4, 3, CORE_BYTES),
        # Blackwell only: keeps 32 bytes together, for transposed 32-bit elements.
        Swizzle("128B_atom32B", 2, 5, 2, 128),
    )
}


#: The mode with the longest pattern: where its pattern starts, the patterns of all others start too.
WIDEST: Final = SWIZZLES["128B"]


def row_bytes_of(span_bytes: Ints) -> Ints:
    """Bytes of each row of a tile that one box holds, for a swizzle span in bytes; 0 is no swizzle."""
    return max(span_bytes, CORE_BYTES) if isinstance(span_bytes, int) else np.maximum(span_bytes, CORE_BYTES)


def widest_span(row_bytes: IntArray) -> IntArray:
    """The widest swizzle span that rows of `row_bytes` fill; the narrowest if they fill none."""
    narrowest, *wider = SWIZZLE_SPANS[1:]
    span = np.full_like(row_bytes, narrowest)
    for each in wider:
        span = np.where(row_bytes >= each, each, span)
    return span


def whole_patterns(rows: IntArray, parts: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each of `parts` equal parts of a tile's rows consists of whole swizzle patterns or core matrices."""
    whole: npt.NDArray[np.bool_] = rows % (CORE_ROWS * parts) == 0
    return whole


def swizzle_named(name: str) -> Swizzle:
    """The swizzle mode of that name; `128` and `128b` mean `128B`.

    Raises:
        LayoutError: there is no such mode.
    """
    for word, swizzle in SWIZZLES.items():
        if name.strip().lower() in (word.lower(), word.lower().removesuffix("b")):
            return swizzle
    raise LayoutError(f"swizzle {name!r} is unknown: use one of {', '.join(SWIZZLES)}")
