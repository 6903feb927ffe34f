"""Shapes: one word for what sort of product a problem is."""

from __future__ import annotations

from typing import Final, Literal, get_args

from space.problem import Problem

ShapeClass = Literal["gemv", "skinny", "deep", "shallow", "wide", "square"]
CLASSES: Final[tuple[ShapeClass, ...]] = get_args(ShapeClass)

#: Up to this many rows or columns, reading the other operand takes all the time.
_SKINNY: Final = 64
#: K is long, or short, against M and N from this factor on.
_DEEP: Final = 8
_WIDE: Final = 4


def shape_class(problem: Problem) -> ShapeClass:
    """The class of a problem's extents: the first that fits.

    `gemv`: M or N is 1; `skinny`: M or N is at most 64; `deep`: K is at least 8 times M and N; `shallow`: M and N are
    at least 8 times K; `wide`: one of M and N is at least 4 times the other; else `square`.
    """
    m, n, k = problem.extents
    least, most = sorted((m, n))
    if least == 1:
        return "gemv"
    if least <= _SKINNY:
        return "skinny"
    if k >= _DEEP * most:
        return "deep"
    if least >= _DEEP * k:
        return "shallow"
    return "wide" if most >= _WIDE * least else "square"
