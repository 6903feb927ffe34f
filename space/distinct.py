"""Distinct rows: a function that reads few knobs is computed once for all rows that agree in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from space.columns import Columns
from space.knobs import Knob

#: Rows per piece, so that a piece stays in the processor's cache.
_PIECE_ROWS: Final = 1 << 14
#: Most group numbers, in total and per row, before groups are renumbered without gaps.
_MAX_NUMBERS, _NUMBERS_PER_ROW = 1 << 22, 4

_Rows = npt.NDArray[np.intp]


def distinct(columns: Columns, knobs: Sequence[Knob]) -> tuple[Columns, _Rows]:
    """One row, with only these knobs known, for all rows that agree in them; and the group of each row.

    Groups are in the order of the domains; the last knob varies fastest.
    """
    group, groups = np.zeros(len(columns), dtype=np.intp), 1
    most = min(_NUMBERS_PER_ROW * len(columns), _MAX_NUMBERS)
    left = list(knobs)
    while left:
        together: list[Knob] = []
        while left and (not together or groups * len(left[0].domain) <= most):
            groups *= len(left[0].domain)
            together.append(left.pop(0))
        group, groups = _without_gaps(_numbered(columns, group, together), groups)
    rows = np.empty(groups, dtype=np.intp)
    rows[group] = np.arange(len(columns))
    return columns.take(rows).only([knob.name for knob in knobs]), group


def _numbered(columns: Columns, group: _Rows, knobs: Sequence[Knob]) -> _Rows:
    """Group numbers that also distinguish these knobs."""
    places = {knob.name: _places(knob) for knob in knobs}
    numbers = np.empty_like(group)
    for begin in range(0, len(columns), _PIECE_ROWS):
        piece, number = columns.part(begin, begin + _PIECE_ROWS), group[begin : begin + _PIECE_ROWS]
        for knob in knobs:
            number = number * len(knob.domain) + places[knob.name].take(piece[knob.name])
        numbers[begin : begin + _PIECE_ROWS] = number
    return numbers


def _places(knob: Knob) -> _Rows:
    """The place of each code in the knob's domain, indexed by code."""
    codes = knob.column()
    places = np.zeros(codes.max() + 1, dtype=np.intp)
    places[codes] = np.arange(len(codes))
    return places


def _without_gaps(group: _Rows, groups: int) -> tuple[_Rows, int]:
    """The same groups in the same order, numbered without gaps; and their number."""
    there = np.zeros(groups, dtype=np.bool_)
    there[group] = True
    number = np.cumsum(there) - 1
    return number.take(group), int(number[-1]) + 1
