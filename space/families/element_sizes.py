"""Bytes of a problem's elements, in every family."""

from __future__ import annotations

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES


def input_bytes(problem: Gemm) -> int:
    """Bytes of one element of A, and of B: no product mixes widths."""
    return DTYPE_BYTES[problem.dtype_a]


def output_bytes(problem: Gemm) -> int:
    """Bytes of one element of C."""
    return DTYPE_BYTES[problem.dtype_c]
