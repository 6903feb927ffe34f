"""Ranking by estimated time, the roofline bound, and the best guess without a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from space.columns import Columns, FloatColumn
from space.config import Config
from space.devices import DeviceProfile
from space.distinct import distinct
from space.enumerate import PIECE_ROWS, Space, enumerate_space
from space.family import Family
from space.problem import Problem


@dataclass(frozen=True)
class Ranked:
    """Candidates of one problem by estimated time, fastest first.

    Attributes:
        space: the candidates.
        order: row numbers of `space.columns`, fastest first.
        estimates_us: estimated time of each row of `order`.
    """

    space: Space
    order: np.ndarray[tuple[int], np.dtype[np.intp]]
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


def _alike(space: Space, device: DeviceProfile) -> tuple[Columns, npt.NDArray[np.intp]]:
    """One row for all rows that agree in the knobs that the estimate reads, and the group of each row.

    One sample row shows which knobs the estimate reads; it must read the same ones for every row.
    """
    sample = space.columns.part(0, 1)
    space.family.estimate_us(sample, device)
    return distinct(space.columns, [knob for knob in space.family.knobs if knob.name in sample.knobs_read])


def roofline_us(problem: Problem, device: DeviceProfile) -> float:
    """The larger of the times of arithmetic at the sustained rate and of the least memory traffic."""
    compute = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    return max(compute, problem.min_bytes / device.hbm_read_tbs / 1e6)


def predict(family: Family, problem: Problem, device: DeviceProfile) -> tuple[Config, float] | None:
    """The candidate with the best estimate, and that estimate in microseconds; None if nothing is legal."""
    ranked = rank(enumerate_space(family, problem, device), device)
    return (ranked.config(0), float(ranked.estimates_us[0])) if len(ranked) else None
