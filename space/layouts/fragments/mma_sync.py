"""Fragments of every shape of `mma.sync`: A, B, and the accumulator C or D."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import WARP_THREADS
from space.elements import element_bits
from space.errors import LayoutError
from space.layouts.fragments.fragment import REGISTER_BITS, Fragment, by_quads

SOURCE: Final = "PTX ISA 9.0 §9.7.14.5, Matrix multiply-accumulate operation using mma instruction"

Shape = tuple[int, int, int]

#: m, n, k by dtype of A and B. A warp computes four products of the legacy m8n8k4 (f16) at once; see `_quad_pairs`.
SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "fp16": ((8, 8, 4), (16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)),
    **dict.fromkeys(("int8", "uint8"), ((8, 8, 16), (16, 8, 16), (16, 8, 32))),
    **dict.fromkeys(("int4", "uint4"), ((8, 8, 32), (16, 8, 32), (16, 8, 64))),
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), ((16, 8, 16), (16, 8, 32))),
    **dict.fromkeys(("fp6_e2m3", "fp6_e3m2"), ((16, 8, 32),)),
    "fp4_e2m1": ((16, 8, 32), (16, 8, 64)),
    "b1": ((8, 8, 128), (16, 8, 128), (16, 8, 256)),
}
#: The shape of packed fp4, whose kinds `mxf4` and `mxf4nvf4` have no f16 sums.
_PACKED_FP4: Final = (16, 8, 64)
#: Accumulators by dtype of A and B.
ACCUMULATORS: Final[dict[str, tuple[str, ...]]] = {
    "fp16": ("fp16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",),
    **dict.fromkeys(("int8", "uint8", "int4", "uint4", "b1"), ("s32",)),
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1"), ("fp16", "f32")),
}  # fmt: skip


def mma_fragment(shape: Shape, operand: str, dtype: str, col: bool | None = None) -> Fragment:
    """One operand of mma.m{m}n{n}k{k}, over the 32 threads of a warp.

    Args:
        shape: m, n, k.
        operand: `A` [m, k], `B` [k, n], `C` or `D` [m, n].
        dtype: dtype of that operand.
        col: whether A or B is column-major in registers, a choice that only m8n8k4 has. None means `row` for A and
            `col` for B, as in all other shapes.

    Raises:
        LayoutError: there is no such instruction.
    """
    if operand not in ("A", "B", "C", "D"):
        raise LayoutError(f"operand {operand!r} of mma.sync is unknown: use A, B, C or D")
    inputs = [word for word, shapes in SHAPES.items() if shape in shapes]
    if not inputs:
        known = sorted({each for shapes in SHAPES.values() for each in shapes})
        raise LayoutError(f"mma.sync has no shape {text(shape)}: use one of {', '.join(map(text, known))}")
    sums = {acc for word in inputs for acc in ACCUMULATORS[word]} - ({"fp16"} if shape == _PACKED_FP4 else set())
    held = inputs if operand in "AB" else sorted(sums)
    if dtype not in held:
        raise LayoutError(f"{operand} of mma.{text(shape)} cannot be {dtype!r}: use one of {', '.join(held)}")
    usual = operand == "B"
    col = usual if col is None else col
    if shape == (8, 8, 4) and dtype != "f64":
        return _quad_pairs(operand, dtype, col)
    if operand in "AB" and col != usual:
        raise LayoutError(
            f"{operand} of mma.{text(shape)} is always {'col' if usual else 'row'}: only m8n8k4 has a choice"
        )
    return _quads(shape, operand, dtype)


def text(shape: Shape) -> str:
    """The shape as PTX writes it: `m16n8k16`."""
    return "m{}n{}k{}".format(*shape)


def _quads(shape: Shape, operand: str, dtype: str) -> Fragment:
    m, n, k = shape
    bits = 8 if dtype == "fp4_e2m1" and k == 32 else element_bits(dtype)
    register_bits = max(REGISTER_BITS, bits)
    tall = m // 8
    if operand == "A":
        packed = register_bits // bits
        row, column = by_quads(WARP_THREADS, tall * (k // (4 * packed)), packed, tall)
        rows, columns = m, k
    elif operand == "B":
        packed = register_bits // bits
        row, column = by_quads(WARP_THREADS, k // (4 * packed), packed, 1, across=True)
        rows, columns = k, n
    else:
        row, column = by_quads(WARP_THREADS, tall, 2, tall)
        rows, columns = m, n
    name = f"mma.sync {text(shape)} {operand} {dtype}"
    return Fragment(name, SOURCE, rows, columns, bits, row, column, np.zeros_like(row), register_bits)


def _quad_pairs(operand: str, dtype: str, col: bool) -> Fragment:
    """m8n8k4: lanes 4i to 4i+3 and 16+4i to 16+4i+3 compute product i of four."""
    lane = np.arange(WARP_THREADS, dtype=np.int64)[:, None]
    element = np.arange(4 if operand in "AB" else 8, dtype=np.int64)[None, :]
    matrix = lane % 16 // 4 + 0 * element
    upper, within = lane // 16, lane % 4
    outer, inner = within + 4 * upper + 0 * element, element + 0 * lane
    if operand in "AB":
        # A lane owns four k of one row of A (column of B), or four rows (columns) of one k.
        along_k = col if operand == "B" else not col
        mn, k = (outer, inner) if along_k else (inner + 4 * upper, within + 0 * element)
        row, column = (mn, k) if operand == "A" else (k, mn)
        shape = (8, 4) if operand == "A" else (4, 8)
    elif dtype == "fp16":
        row, column, shape = outer, inner, (8, 8)
    else:
        row = within % 2 + (element & 2) + 4 * upper
        column, shape = (element & 4) + within // 2 * 2 + element % 2, (8, 8)
    name = f"mma.sync m8n8k4 {operand} {dtype}" + (f" {'col' if col else 'row'}" if operand in "AB" else "")
    return Fragment(name, SOURCE, *shape, element_bits(dtype), row, column, matrix)
