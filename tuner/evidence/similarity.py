"""Similarity of problems: which measurements are relevant to another problem, and how closely."""

from __future__ import annotations

import math
from typing import Final

from space.problem import Problem

#: Winners of a problem are worth trying if each extent lies within this factor.
REACH: Final = 8


def kind_of(problem: Problem) -> tuple[str, ...]:
    """The properties, extents aside, that two problems share if measurements of one are relevant to the other."""
    return problem.kind, *problem.similar


def reaches(one: Problem, other: Problem) -> bool:
    """Whether the winner on `other`, of the same kind and batch, is worth trying on `one`."""
    pairs = zip(one.extents, other.extents, strict=True)
    return one.batch == other.batch and all(mine // REACH <= theirs <= mine * REACH for mine, theirs in pairs)


def octaves(one: Problem, other: Problem) -> float:
    """How far two problems are apart: the distance of their shapes, and of their batches."""
    return one.distance(other) + abs(math.log2(one.batch / other.batch))
