"""Scale factors of block-scaled `tcgen05.mma` in tensor memory: one byte for each block of each row.

Row m (of A; column n of B) lies in lane m mod 32 and 32-bit column m div 32. Its factors take the bytes of that
one word from SF_ID on. The 32 lanes are copied to all four 32-lane partitions of tensor memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from space.errors import LayoutError
from space.layouts.swizzle import IntArray

SOURCE: Final = "PTX ISA 9.0 §9.7.16.10.7, Block Scaling; CUTLASS include/cute/atom/mma_traits_sm100.hpp, tmem_sf_frg"
#: Factors a row holds for one instruction, and the bytes of the word at which they may begin.
VECTORS: Final[dict[str, tuple[int, tuple[int, ...]]]] = {"1X": (1, (0, 1, 2, 3)), "2X": (2, (0, 2)), "4X": (4, (0,))}
#: Lanes of one partition, and how many partitions hold a copy.
PARTITION_LANES: Final = 32
PARTITIONS: Final = 4
_MOST_ROWS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class ScaleFactors:
    """(row, block, copy) → (lane, column, byte), arrays [rows, blocks, 4]."""

    vector: str
    rows: int
    lane: IntArray
    column: IntArray
    byte: IntArray

    @property
    def columns(self) -> int:
        """32-bit columns of tensor memory that are touched."""
        return int(self.column.max()) + 1


def scale_factors(vector: str, rows: int, sf_id: int = 0) -> ScaleFactors:
    """Where the factors of `rows` rows lie.

    Args:
        vector: `.scale_vec::1X`, `2X` or `4X`: blocks of K that one instruction scales apart.
        rows: M of A, or N of B.
        sf_id: SFA_ID or SFB_ID of the instruction descriptor.

    Raises:
        LayoutError: a vector size that is not there, or factors that cross a word.
    """
    if vector not in VECTORS:
        raise LayoutError(f"scale_vec::{vector} is not there: use one of {', '.join(VECTORS)}")
    blocks, starts = VECTORS[vector]
    if sf_id not in starts:
        raise LayoutError(
            f"SF_ID = {sf_id} with scale_vec::{vector}: its {blocks} factors begin at byte "
            f"{' or '.join(map(str, starts))} of the word"
        )
    if not 8 <= rows <= _MOST_ROWS or rows % 8:
        raise LayoutError(f"rows = {rows}: M or N of one instruction is a multiple of 8 from 8 to {_MOST_ROWS}")
    row, block, copy = np.indices((rows, blocks, PARTITIONS), dtype=np.int64)
    lane = row % PARTITION_LANES + PARTITION_LANES * copy
    return ScaleFactors(vector, rows, lane, row // PARTITION_LANES, block + sf_id)
