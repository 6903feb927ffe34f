"""Drawings of fragments in registers, and of scale factors in tensor memory."""

from __future__ import annotations

from typing import Final

from space.arch import WARP_THREADS
from space.layouts.draw.canvas import FAINT, PAD, UNUSED, Canvas, color_of
from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.scale_factors import PARTITION_LANES, ScaleFactors
from space.layouts.swizzle import IntArray

_CELL_HEIGHT: Final = 17.0
#: Width of a cell: its padding, and per character of the label.
_CELL_WIDTH: Final = (6.0, 5.4)
_HEAD: Final = 34.0
#: Eight hues for the quads of a warp, four shades for the lanes of a quad.
_SHADES: Final = 4
#: Matrices side by side.
_ACROSS: Final = 2


def fragment_svg(fragment: Fragment) -> str:
    """One cell per element, with its thread and register, and one colour per lane.

    `T5 r2` is register 2 of thread 5; `T5 r2.1` is the second element packed into it.
    """
    packed = fragment.elements_per_register
    note = (
        f"{fragment.threads} threads, {fragment.registers} registers of {fragment.register_bits} bits per thread, "
        f"{packed} element{'s' * (packed > 1)} per register; T thread, r register"
        + (", . element of the register" * (packed > 1))
    )
    canvas = Canvas(fragment.name, note)
    longest = len(f"T{fragment.threads - 1} r{fragment.registers - 1}" + (f".{packed - 1}" if packed > 1 else ""))
    cell = (_CELL_WIDTH[0] + _CELL_WIDTH[1] * longest, _CELL_HEIGHT)
    thread, element = fragment.owners()
    wide, high = cell[0] * fragment.columns + _HEAD + PAD, cell[1] * fragment.rows + _HEAD + PAD
    for matrix in range(fragment.matrices):
        at = PAD + matrix % _ACROSS * wide, canvas.top + matrix // _ACROSS * high
        if fragment.matrices > 1:
            canvas.text(at[0] + _HEAD, at[1] + 10, f"matrix {matrix}", size=11, bold=True)
        _matrix(canvas, fragment, thread[matrix], element[matrix], at, cell)
    canvas.text(PAD, canvas.top + high * -(-fragment.matrices // _ACROSS) + 10, fragment.source, size=10, fill=FAINT)
    return canvas.svg()


def _matrix(
    canvas: Canvas, fragment: Fragment, thread: IntArray, element: IntArray, at: tuple[float, float],
    cell: tuple[float, float],
) -> None:  # fmt: skip
    width, height = cell
    left, top = at[0] + _HEAD, at[1] + _HEAD
    for column in range(fragment.columns):
        canvas.text(left + (column + 0.5) * width, top - 5, str(column), size=9, fill=FAINT, anchor="middle")
    for row in range(fragment.rows):
        canvas.text(left - 5, top + (row + 0.68) * height, str(row), size=9, fill=FAINT, anchor="end")
        for column in range(fragment.columns):
            fill, label, hint = _element(fragment, int(thread[row, column]), int(element[row, column]))
            canvas.cell(left + column * width, top + row * height, width, height, fill, label,
                        f"row {row}, column {column}: {hint}")  # fmt: skip
    for row in range(0, fragment.rows, 8):
        for column in range(0, fragment.columns, 8):
            deep, across = min(8, fragment.rows - row), min(8, fragment.columns - column)
            canvas.frame(left + column * width, top + row * height, across * width, deep * height)


def _element(fragment: Fragment, thread: int, element: int) -> tuple[str, str, str]:
    """Colour, label and tooltip of one element."""
    if thread < 0:
        return UNUSED, "", "held by no thread"
    register, bit = fragment.slot(element)
    lane = thread % WARP_THREADS
    label = f"T{thread} r{register}"
    if fragment.elements_per_register > 1:
        label += f".{element % fragment.elements_per_register}"
    bits = f"bits {bit}-{bit + fragment.element_bits - 1}"
    hint = f"thread {thread} (warp {thread // WARP_THREADS}, lane {lane}), register {register}, {bits}"
    return color_of(lane, WARP_THREADS, _SHADES), label, hint


def scale_factors_svg(factors: ScaleFactors) -> str:
    """The 32 lanes of one partition: one cell per byte, with the row and the block of K that it scales."""
    blocks = factors.lane.shape[1]
    canvas = Canvas(
        f"scale_vec::{factors.vector} of {factors.rows} rows in tensor memory",
        f"m row of A (column of B), k block of K; {blocks} of 4 bytes are read; "
        f"lanes 0-31 are copied to 32-63, 64-95 and 96-127",
    )
    width, height = 50.0, 16.0
    left, top = PAD + _HEAD, canvas.top + _HEAD
    for column in range(factors.columns):
        canvas.text(left + (4 * column + 2) * width, top - 18, f"column {column}", size=10, anchor="middle")
        for byte in range(4):
            x = left + (4 * column + byte) * width
            canvas.text(x + width / 2, top - 5, f"byte {byte}", size=8, fill=FAINT, anchor="middle")
            for lane in range(PARTITION_LANES):
                canvas.cell(x, top + lane * height, width, height, UNUSED)
    for row in range(factors.rows):
        for block in range(blocks):
            lane, column, byte = (int(a[row, block, 0]) for a in (factors.lane, factors.column, factors.byte))
            canvas.cell(left + (4 * column + byte) * width, top + lane * height, width, height,
                        color_of(lane, PARTITION_LANES, _SHADES), f"m{row} k{block}",
                        f"row {row}, block {block}: lanes {lane}, {lane + 32}, {lane + 64}, {lane + 96}")  # fmt: skip
    for lane in range(PARTITION_LANES):
        canvas.text(left - 5, top + (lane + 0.7) * height, str(lane), size=9, fill=FAINT, anchor="end")
    for column in range(factors.columns):
        canvas.frame(left + 4 * column * width, top, 4 * width, PARTITION_LANES * height)
    return canvas.svg()
