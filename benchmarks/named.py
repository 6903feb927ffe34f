"""Problems as benchmarks name them on the command line."""

from __future__ import annotations

from space.problem import Problem


def problem_of(text: str) -> Problem:
    """The problem that `DTYPE:MxNxK` names, A row-major and B as a Linear's weight lies."""
    dtype, _, shape = text.partition(":")
    return Problem.parse(shape, dtype)
