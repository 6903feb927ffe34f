"""Fragments of `ldmatrix` and `stmatrix`: 8 x 8 matrices of 16-bit elements between shared memory and registers.

Both use the same map: `stmatrix` stores from a register what `ldmatrix` with the same qualifiers loads into it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import WARP_THREADS
from space.errors import LayoutError
from space.layouts.fragments.fragment import Fragment

SOURCES: Final = {
    "ldmatrix": "PTX ISA 9.0 §9.7.14.5.15, ldmatrix",
    "stmatrix": "PTX ISA 9.0 §9.7.14.5.16, stmatrix",
}
COUNTS: Final = (1, 2, 4)
#: Rows, and columns, of one matrix.
ROWS: Final = 8


def matrix_fragment(instruction: str, count: int, trans: bool) -> Fragment:
    """Register i of each lane holds two elements of matrix i: neighbours in a row, with `.trans` in a column.

    Args:
        instruction: `ldmatrix` or `stmatrix`.
        count: matrices of 128 B: 1, 2 or 4, as in `.x1`, `.x2`, `.x4`.

    Raises:
        LayoutError: there is no such instruction or count.
    """
    if instruction not in SOURCES:
        raise LayoutError(f"{instruction!r} does not move matrices: use {' or '.join(SOURCES)}")
    if count not in COUNTS:
        raise LayoutError(f"{instruction} has no .x{count}: use .x1, .x2 or .x4")
    lane = np.arange(WARP_THREADS, dtype=np.int64)[:, None]
    matrix, half = np.divmod(np.arange(2 * count, dtype=np.int64)[None, :], 2)
    outer, inner = lane // 4 + 0 * half, 2 * (lane % 4) + half
    row, column = (inner, outer) if trans else (outer, inner)
    name = f"{instruction} m8n8.x{count}{'.trans' if trans else ''} b16"
    return Fragment(name, SOURCES[instruction], ROWS, ROWS, 16, row, column, matrix + 0 * lane)
