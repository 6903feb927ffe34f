"""Similarity of problems: which measurements are relevant to another problem, and how closely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from space.problem import DISTANCE_DIGITS, Problem

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


class Places:
    """Problems of one kind as points, to find the nearest one of many at once.

    Args:
        problems: at least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._problems, self._points = problems, np.array([_point(problem) for problem in problems])

    def nearest(self, problem: Problem) -> tuple[Problem, float]:
        """The first of the nearest problems, and its `octaves` from `problem`, of the same kind."""
        away = np.abs(self._points - _point(problem))
        apart = np.round(away[:, :-1].sum(axis=1), DISTANCE_DIGITS) + away[:, -1]
        place = int(apart.argmin())
        return self._problems[place], float(apart[place])


def _point(problem: Problem) -> npt.NDArray[np.float64]:
    return np.log2([*problem.extents, problem.batch])
