"""Fragments of `tcgen05.ld` and `tcgen05.st`: tensor memory between its lanes and columns and a warp's registers.

Rows are lanes of tensor memory, counted from the first lane of the access; columns are its 32-bit columns. Warp w of a
warpgroup reaches only lanes 32·w to 32·w + 31.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from space.arch import WARP_THREADS
from space.errors import LayoutError
from space.instructions.tcgen05 import TMEM_LOAD_REPEATS
from space.layouts.fragments.fragment import Fragment
from space.layouts.swizzle import IntArray

SOURCE: Final = "PTX ISA 9.0 §9.7.16.2.3, Data Movement Shape; CUTLASS include/cute/atom/copy_traits_sm100.hpp"


@dataclass(frozen=True, slots=True)
class Shape:
    """One data movement shape.

    Attributes:
        lanes: lanes of tensor memory.
        columns: 32-bit columns per repetition.
        registers: registers per thread and repetition.
        place: (thread, register) → (lane, column).
    """

    lanes: int
    columns: int
    registers: int
    place: Callable[[IntArray, IntArray], tuple[IntArray, IntArray]]


SHAPES: Final[dict[str, Shape]] = {
    "32x32b": Shape(32, 1, 1, lambda t, r: (t + 0 * r, r + 0 * t)),
    "16x64b": Shape(16, 2, 1, lambda t, r: (t // 4 + 8 * (t % 2) + 0 * r, t // 2 % 2 + 2 * r)),
    "16x128b": Shape(16, 4, 2, lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2))),
    "16x256b": Shape(16, 8, 4, lambda t, r: (t // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (t % 4) + 8 * (r // 4))),
}
#: Two accesses of 16 lanes x 32 bits: lanes 16 to 31 of the warp access columns `split` further on.
TWICE: Final = "16x32bx2"
_REPEATS: Final = TMEM_LOAD_REPEATS | {TWICE: TMEM_LOAD_REPEATS["32x32b"]}


def tmem_fragment(
    shape: str, repeat: int, *, pack16: bool = False, split: int | None = None, store: bool = False
) -> Fragment:
    """Which lane and column of tensor memory each register of a warp holds.

    Args:
        shape: one of `SHAPES`, or `16x32bx2`.
        repeat: N of `.xN`, a power of two.
        pack16: `.pack::16b` (`.unpack::16b`): two 16-bit values of neighbouring columns share a register.
        split: for `16x32bx2`: columns between the two accesses; None takes N, so that they lie side by side.
        store: names `tcgen05.st`, whose map is the same.

    Raises:
        LayoutError: there is no such shape or repetition.
    """
    instruction, packing = ("tcgen05.st", ".unpack::16b") if store else ("tcgen05.ld", ".pack::16b")
    if shape not in (*SHAPES, TWICE):
        raise LayoutError(f"{instruction} has no shape {shape!r}: use one of {', '.join((*SHAPES, TWICE))}")
    if repeat not in _REPEATS[shape]:
        known = ", ".join(f".x{each}" for each in _REPEATS[shape])
        raise LayoutError(f"{instruction}.{shape} has no .x{repeat}: use one of {known}")
    if split is not None and (shape != TWICE or split < 0):
        raise LayoutError(f"split = {split}: only {TWICE} has a second access, 0 or more columns further on")
    thread = np.arange(WARP_THREADS, dtype=np.int64)[:, None]
    if shape == TWICE:
        apart = repeat if split is None else split
        register = np.arange(repeat, dtype=np.int64)[None, :]
        row, column, lanes = thread % 16 + 0 * register, register + thread // 16 * apart, 16
        columns = repeat + apart
    else:
        facts = SHAPES[shape]
        register = np.arange(repeat * facts.registers, dtype=np.int64)[None, :]
        row, column = facts.place(thread, register)
        lanes, columns = facts.lanes, facts.columns * repeat
    name = f"{instruction} {shape}.x{repeat}" + (packing if pack16 else "")
    if pack16:
        row, column, columns = np.repeat(row, 2, axis=1), _both_halves(column), 2 * columns
    return Fragment(name, SOURCE, lanes, columns, 16 if pack16 else 32, row, column, np.zeros_like(row))


def _both_halves(column: IntArray) -> IntArray:
    low = np.repeat(2 * column, 2, axis=1)
    return low + np.arange(low.shape[1], dtype=np.int64) % 2
