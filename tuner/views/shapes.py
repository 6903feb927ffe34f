"""Shapes: one word for a problem's proportions."""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

ShapeClass = Literal["gemv", "skinny", "deep", "shallow", "wide", "square"]
CLASSES: Final[tuple[ShapeClass, ...]] = get_args(ShapeClass)

#: Up to this many rows or columns, reading the other operand takes all the time.
_SKINNY: Final = 64
#: Least factor by which K is long, or short, against M and N.
_DEEP: Final = 8
_WIDE: Final = 4
_Extents = npt.NDArray[np.int64]


def shape_classes(m: _Extents, n: _Extents, k: _Extents) -> npt.NDArray[np.int32]:
    """The class of each problem, as its place in `CLASSES`: the first that fits.

    `gemv`: M or N is 1; `skinny`: M or N is at most 64; `deep`: K is at least 8 times M and N; `shallow`: M and N are
    at least 8 times K; `wide`: one of M and N is at least 4 times the other; else `square`.
    """
    least, most = np.minimum(m, n), np.maximum(m, n)
    fits = [least == 1, least <= _SKINNY, k >= _DEEP * most, least >= _DEEP * k, most >= _WIDE * least]
    return np.select(fits, list(range(len(fits))), len(fits)).astype(np.int32)
