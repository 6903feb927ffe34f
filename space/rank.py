"""Ranking by estimated time, and the roofline bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from space.columns import Columns, FloatColumn
from space.config import Config
from space.devices import DeviceProfile
from space.enumerate import PIECE_ROWS, Space
from space.knobs import Knob
from space.problem import Problem

#: Rows per piece, so that a piece stays in the processor's cache.
_PIECE_ROWS: Final = 1 << 14
#: Longer products, if they can reach the power limit, are ranked at the clock that their own power leaves them; shorter
#: ones among their neighbours.
LONG_US: Final = 30.0
#: How much longer a product takes at the power limit than after rest, as a share of its time, for each element of A
#: and B that a block loads for a multiply-add. Finals of long products say 2.3 on H100s, 2.8, 1.1, 3.7 and 2.4 on
#: H200s (benchmarks/results/finals_h100.md, finals_h200_long.md, finals_h200_suite.md, finals_h200_power.md,
#: finals_h200_now.md).
LOADS_AT_LIMIT: Final = 3.0
#: Most group numbers, in total and per row, before groups are renumbered without gaps.
_MAX_NUMBERS, _NUMBERS_PER_ROW = 1 << 22, 4

_Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Ranked:
    """Candidates of one problem by estimated time, fastest first.

    Attributes:
        space: the candidates.
        order: row numbers of `space.columns`, fastest first.
        estimates_us: estimated time of each row of `order`.
    """

    space: Space
    order: _Rows
    estimates_us: FloatColumn

    def __len__(self) -> int:
        return len(self.order)

    def config(self, place: int) -> Config:
        """The candidate at `place` in the ranking, from 0."""
        return self.space.family.config_at(self.space.columns, int(self.order[place]))

    def configs(self, most: int | None = None) -> list[Config]:
        """The first `most` candidates, or all."""
        return self.space.family.configs_of(self.space.columns.take(self.order[:most]))


def rank(space: Space, device: DeviceProfile, within: float | None = None) -> Ranked:
    """Ranks the candidates of `space`; ties keep the order of enumeration.

    Args:
        within: keep only estimates of up to this many times the best one.
    """
    if not len(space):
        return Ranked(space, np.empty(0, dtype=np.intp), np.empty(0))
    columns, which = _alike(space, device)
    parts = [columns.part(begin, begin + PIECE_ROWS) for begin in range(0, len(columns), PIECE_ROWS)]
    estimates, level = np.unique(
        np.concatenate([space.family.estimate_us(part, device) for part in parts]), return_inverse=True
    )
    # Sorting one number per row, its level above its row number, is many times faster than sorting rows by level.
    bits = len(space).bit_length()
    numbers = np.sort((level << bits).take(which) | np.arange(len(space)))
    order, estimates = numbers & ((1 << bits) - 1), estimates.take(numbers >> bits)
    last = len(order) if within is None else int(np.searchsorted(estimates, within * estimates[0], side="right"))
    return Ranked(space, order[:last], estimates[:last])


def _alike(space: Space, device: DeviceProfile) -> tuple[Columns, _Rows]:
    """One row for all rows that agree in the knobs that the estimate reads, and the group of each row.

    One sample row shows which knobs the estimate reads; it must read the same ones for every row.
    """
    sample = space.columns.part(0, 1)
    space.family.estimate_us(sample, device)
    return distinct(space.columns, [knob for knob in space.family.knobs if knob.name in sample.knobs_read])


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


def may_reach_power_limit(problem: Problem, device: DeviceProfile) -> bool:
    """Whether arithmetic takes at least half of the roofline's time, so that power may limit the clock."""
    compute_us = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    return roofline_us(problem, device) < 2 * compute_us


def power_decides(problem: Problem, device: DeviceProfile | None) -> bool:
    """Whether `sustained` decides which kernel is served: the product is long and may reach the power limit; not on a
    device without a profile."""
    return device is not None and may_reach_power_limit(problem, device) and roofline_us(problem, device) > LONG_US


def at_power_limit_us(config: Config, rested_us: float) -> float:
    """The time to expect at the power limit, up to a factor that is the same for all configs of a problem.

    Moving operands takes a fifth of the power (docs/kernels.md), and large tiles move fewer.

    Args:
        rested_us: under `burst`.
    """
    return rested_us * (1 + LOADS_AT_LIMIT * loads_of(config))


def loads_of(config: Config) -> float:
    """Elements of A and B that a block loads for each multiply-add, multicast or not; 0 for a family without tiles."""
    knobs = config.knobs
    if not {"tile_m", "tile_n"} <= knobs.keys():
        return 0.0
    return 1 / config.number("tile_m") + 1 / config.number("tile_n")


def roofline_us(problem: Problem, device: DeviceProfile) -> float:
    """The larger of the times of arithmetic at the sustained rate and of the least memory traffic."""
    compute = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    return max(compute, problem.min_bytes / device.hbm_read_tbs / 1e6)
