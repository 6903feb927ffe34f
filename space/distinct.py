"""Distinct rows: what reads few knobs is computed once for all rows that agree in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from space.columns import Columns
from space.knobs import Knob

#: Rows that are looked at a time, so that they stay in the processor's cache.
_PIECE_ROWS: Final = 1 << 14
#: Numbers that groups may have, altogether and for each row, before they are numbered anew without gaps.
_MOST_NUMBERS, _NUMBERS_PER_ROW = 1 << 22, 4

_Rows = npt.NDArray[np.intp]


def distinct(columns: Columns, knobs: Sequence[Knob]) -> tuple[Columns, _Rows]:
    """One row for all that agree in these knobs, the only ones that it knows; and for each row which one that is.

    Rows are numbered as places of their values in the domains say, the last knob's fastest.
    """
    group, groups = np.zeros(len(columns), dtype=np.intp), 1
    most = min(_NUMBERS_PER_ROW * len(columns), _MOST_NUMBERS)
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
    """Groups told apart by these knobs too."""
    places = {knob.name: _places(knob) for knob in knobs}
    numbers = np.empty_like(group)
    for begin in range(0, len(columns), _PIECE_ROWS):
        piece, number = columns.part(begin, begin + _PIECE_ROWS), group[begin : begin + _PIECE_ROWS]
        for knob in knobs:
            number = number * len(knob.domain) + places[knob.name].take(piece[knob.name])
        numbers[begin : begin + _PIECE_ROWS] = number
    return numbers


def _places(knob: Knob) -> _Rows:
    """By code, its place in the knob's domain."""
    codes = knob.column()
    places = np.zeros(codes.max() + 1, dtype=np.intp)
    places[codes] = np.arange(len(codes))
    return places


def _without_gaps(group: _Rows, groups: int) -> tuple[_Rows, int]:
    """The same groups in the same order, numbered from 0 on; and how many there are."""
    there = np.zeros(groups, dtype=np.bool_)
    there[group] = True
    number = np.cumsum(there) - 1
    return number.take(group), int(number[-1]) + 1
