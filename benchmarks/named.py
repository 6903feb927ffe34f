"""Parses the problems that benchmarks take on the command line."""

from __future__ import annotations

from space.kinds.gemm import Gemm


def problem_of(text: str) -> Gemm:
    """The problem of `DTYPE:MxNxK`, with layout `nt` like a Linear's weight."""
    dtype, _, shape = text.partition(":")
    return Gemm.parse(shape, dtype)
