"""Parses the problems that benchmarks take on the command line."""

from __future__ import annotations

from space.kinds.gemm import Gemm


def problem_of(text: str) -> Gemm:
    """The problem that `DTYPE:MxNxK` names, A row-major and B as a Linear's weight lies."""
    dtype, _, shape = text.partition(":")
    return Gemm.parse(shape, dtype)
