"""Layouts: how a matrix lies in memory, by its strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from space.instructions.tma import STRIDE_STEP_BYTES
from workers.cuda.copies import Strides

#: The layouts that kernels read, for messages.
READABLE: Final = (
    "kernels read matrices whose rows or columns are contiguous, and dense or multiples of "
    f"{STRIDE_STEP_BYTES} bytes apart"
)


def layout_of(
    shape: Sequence[int], strides: Sequence[int], element_bytes: int
) -> tuple[str, Strides | None] | None:
    """`n` if the elements of a row are neighbours, `t` if those of a column are; and how lines lie that are apart.

    A vector is one line: its elements as lines of their own would be the same memory, which kernels had to pack first.
    None where no kernel reads the matrix, or the batch of matrices, without a copy.

    Args:
        strides: in elements.
    """
    rows, columns = shape[-2:]
    down, along = strides[-2:]
    batch = shape[0] if len(shape) == 3 else 1
    step = strides[0] if batch > 1 else rows * columns
    ways = [("n", rows, columns, down, along), ("t", columns, rows, along, down)]
    if columns == 1 < rows:
        ways.reverse()
    for letter, lines, width, line, next_ in ways:
        if step == rows * columns and (width == 1 or next_ == 1) and (lines == 1 or line == width):
            return letter, None
    aligned = STRIDE_STEP_BYTES // math.gcd(STRIDE_STEP_BYTES, element_bytes)
    if batch > 1 and (step <= 0 or step % aligned):
        return None
    for letter, lines, width, line, next_ in ways:
        if lines == 1:
            line = step
        if next_ == 1 and line >= width and line % aligned == 0:
            return letter, Strides(line, step if batch > 1 else line * lines)
    return None
