"""Kinship of problems: which measurements bear on which other problem, and how closely."""

from __future__ import annotations

import math

from space.problem import Problem
from tuner.distance import log_distance


def kind_of(problem: Problem) -> tuple[str, str, str]:
    """What two problems must share beside their extents for measurements of one to bear on the other."""
    return problem.dtype, problem.layout, problem.epilogue


def octaves(one: Problem, other: Problem) -> float:
    """How far two problems are apart: the distance of their shapes, and of their batches."""
    return log_distance(one, other) + abs(math.log2(one.batch / other.batch))
