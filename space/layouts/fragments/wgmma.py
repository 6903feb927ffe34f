"""Fragments of `wgmma.mma_async`: the accumulator, and A in registers."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.elements import element_bits
from space.errors import LayoutError
from space.instructions.wgmma import A_REGISTERS, FLOAT_N, INTEGER_N, K_BYTES, WARPGROUP_THREADS, M
from space.layouts.fragments.fragment import REGISTER_BITS, Fragment, by_quads

SOURCE: Final = "PTX ISA 9.0 §9.7.15.5.1.1, Register Fragments"
#: Dtypes of A in registers; every one takes four registers.
A_DTYPES: Final = ("bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "int8", "uint8", "b1")
#: K of the instructions, by dtype of the accumulator.
D_DTYPES: Final[dict[str, tuple[int, ...]]] = {"f32": (8, 16, 32), "fp16": (16, 32), "s32": (32, 256)}


def wgmma_fragment(n: int, k: int, operand: str, dtype: str) -> Fragment:
    """D[64, n] or A[64, k] of m64nNkK, over the 128 threads of a warpgroup.

    Args:
        operand: `D`, or `A` in registers.
        dtype: dtype of that operand.

    Raises:
        LayoutError: there is no such instruction, or the operand is not in registers.
    """
    if operand == "D":
        return _accumulator(n, k, dtype)
    if operand == "A":
        return _operand_a(n, k, dtype)
    raise LayoutError(
        f"operand {operand!r} of wgmma is not in registers: use D or A"
        + ("; B is in shared memory: see `layout descriptor` and `layout boxes`" if operand == "B" else "")
    )


def _accumulator(n: int, k: int, dtype: str) -> Fragment:
    if dtype not in D_DTYPES:
        raise LayoutError(f"wgmma does not accumulate in {dtype!r}: use one of {', '.join(D_DTYPES)}")
    if k not in D_DTYPES[dtype]:
        raise LayoutError(f"no wgmma with k = {k} accumulates in {dtype}: k is {_or(D_DTYPES[dtype])}")
    _check_n(n, INTEGER_N if dtype == "s32" else FLOAT_N, dtype)
    # A pair of neighbours in a row, the pair 8 rows below, then the next 8 columns; a pair of f16 is one register.
    row, column = by_quads(WARPGROUP_THREADS, M * n // WARPGROUP_THREADS // 2, 2, tall=2)
    name = f"wgmma m{M}n{n}k{k} D {dtype}"
    return Fragment(name, SOURCE, M, n, element_bits(dtype), row, column, np.zeros_like(row))


def _operand_a(n: int, k: int, dtype: str) -> Fragment:
    if dtype not in A_DTYPES:
        raise LayoutError(f"wgmma does not read A of {dtype!r}: use one of {', '.join(A_DTYPES)}")
    bits = element_bits(dtype)
    extent = 8 * K_BYTES // bits
    if k != extent:
        raise LayoutError(f"no wgmma with k = {k} reads {dtype}: k is {extent}, {K_BYTES} bytes")
    _check_n(n, INTEGER_N if dtype in ("int8", "uint8", "b1") else FLOAT_N, dtype)
    row, column = by_quads(WARPGROUP_THREADS, A_REGISTERS, REGISTER_BITS // bits, tall=2)
    return Fragment(f"wgmma m{M}n{n}k{k} A {dtype}", SOURCE, M, k, bits, row, column, np.zeros_like(row))


def _check_n(n: int, legal: tuple[int, ...], dtype: str) -> None:
    if n in legal:
        return
    nearest = min(legal, key=lambda known: (abs(known - n), known))
    what = "8 to 256 in steps of 8" if legal is FLOAT_N else ", ".join(map(str, legal))
    raise LayoutError(f"n = {n} is not an extent of wgmma with {dtype}: use {what}; the nearest is {nearest}")


def _or(values: tuple[int, ...]) -> str:
    return " or ".join(map(str, values))
