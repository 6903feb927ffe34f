"""Scale factors of block-scaled `tcgen05.mma` in tensor memory: one byte per block of each row.

The factors of row m of A (or column m of B) are in lane m mod 32, 32-bit column m div 32, in the bytes of that word
from SF_ID on. All four 32-lane partitions of tensor memory hold a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from space.errors import LayoutError
from space.layouts.swizzle import IntArray

SOURCE: Final = "PTX ISA 9.0 §9.7.16.10.7, Block Scaling; CUTLASS include/cute/atom/mma_traits_sm100.hpp, tmem_sf_frg"
#: Factors per row and instruction, and the bytes of a word at which they may start.
VECTORS: Final[dict[str, tuple[int, tuple[int, ...]]]] = {"1X": (1, (0, 1, 2, 3)), "2X": (2, (0, 2)), "4X": (4, (0,))}
#: Lanes per partition, and number of partitions.
PARTITION_LANES: Final = 32
PARTITIONS: Final = 4
_MAX_ROWS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class ScaleFactors:
    """(row, block, copy) → (lane, column, byte), as arrays [rows, blocks, 4]."""

    vector: str
    rows: int
    lane: IntArray
    column: IntArray
    byte: IntArray

    @property
    def columns(self) -> int:
        """32-bit columns of tensor memory that the factors take."""
        return int(self.column.max()) + 1


def scale_factors(vector: str, rows: int, sf_id: int = 0) -> ScaleFactors:
    """Where the factors of `rows` rows are.

    Args:
        vector: `1X`, `2X` or `4X`, as in `.scale_vec::2X`: blocks of K per instruction.
        rows: M of A, or N of B.
        sf_id: SFA_ID or SFB_ID of the instruction descriptor.

    Raises:
        LayoutError: there is no such vector size, the factors cross a word, or M or N has no such extent.
    """
    if vector not in VECTORS:
        raise LayoutError(f"scale_vec::{vector} does not exist: use one of {', '.join(VECTORS)}")
    blocks, starts = VECTORS[vector]
    if sf_id not in starts:
        raise LayoutError(
            f"SF_ID = {sf_id} with scale_vec::{vector}: its {blocks} factors start at byte "
            f"{' or '.join(map(str, starts))} of the word"
        )
    if not 8 <= rows <= _MAX_ROWS or rows % 8:
        raise LayoutError(f"rows = {rows}: M or N of one instruction is a multiple of 8 from 8 to {_MAX_ROWS}")
    row, block, copy = np.indices((rows, blocks, PARTITIONS), dtype=np.int64)
    lane = row % PARTITION_LANES + PARTITION_LANES * copy
    return ScaleFactors(vector, rows, lane, row // PARTITION_LANES, block + sf_id)
