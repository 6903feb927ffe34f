"""How far apart two problems are; what `nearest` means."""

from __future__ import annotations

import math
from typing import Final

from space.problem import Problem

#: Of a distance, behind the point.
DIGITS: Final = 9


def log_distance(one: Problem, other: Problem) -> float:
    """The sum of |log2| of the ratios of M, N and K: twice as many rows are as far away as half as many.

    Rounded, so that shapes that are equally far in theory are equally far here.
    """
    pairs = ((one.m, other.m), (one.n, other.n), (one.k, other.k))
    return round(sum(abs(math.log2(a / b)) for a, b in pairs), DIGITS)
