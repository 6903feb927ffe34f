"""Fragments of `ldmatrix` and `stmatrix`: 8 x 8 matrices of 16-bit elements between shared memory and registers.

Both use one map: what `ldmatrix` puts into a register, `stmatrix` with the same qualifiers stores from it.
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
#: Of one matrix.
ROWS: Final = 8


def matrix_fragment(instruction: str, count: int, trans: bool) -> Fragment:
    """Register i of each lane holds two elements of matrix i: neighbours in a row, with `.trans` in a column.

    Args:
        instruction: `ldmatrix` or `stmatrix`.
        count: matrices moved, 1, 2 or 4; `.x1`, `.x2`, `.x4`. A warp moves 128 B of each.

    Raises:
        LayoutError: a count that is not there.
    """
    if instruction not in SOURCES:
        raise LayoutError(f"{instruction!r} moves no matrices: use {' or '.join(SOURCES)}")
    if count not in COUNTS:
        raise LayoutError(f"{instruction}.x{count} is not there: use .x1, .x2 or .x4")
    lane = np.arange(WARP_THREADS, dtype=np.int64)[:, None]
    matrix, half = np.divmod(np.arange(2 * count, dtype=np.int64)[None, :], 2)
    outer, inner = lane // 4 + 0 * half, 2 * (lane % 4) + half
    row, column = (inner, outer) if trans else (outer, inner)
    name = f"{instruction} m8n8.x{count}{'.trans' if trans else ''} b16"
    return Fragment(name, SOURCES[instruction], ROWS, ROWS, 16, row, column, matrix + 0 * lane)


def addressed_row(lane: int, count: int) -> tuple[int, int] | None:
    """Matrix and row whose address the instruction takes from `lane`; None where it takes none from it."""
    return divmod(lane, ROWS) if lane < ROWS * count else None
