"""Kinship of problems: which measurements bear on which other problem, and how closely."""

from __future__ import annotations

import math

from space.problem import Problem


def kind_of(problem: Problem) -> tuple[str, str, str]:
    """What two problems must share beside their extents for measurements of one to bear on the other."""
    return problem.dtype, problem.layout, problem.epilogue


def octaves(one: Problem, other: Problem) -> float:
    """How far two shapes are apart: the sum of |log2| of the ratios of M, N, K and batch."""
    pairs = ((one.m, other.m), (one.n, other.n), (one.k, other.k), (one.batch, other.batch))
    return sum(abs(math.log2(a / b)) for a, b in pairs)
