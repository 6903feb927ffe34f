"""Ranking: the time estimate over columns, the roofline bound, and the best guess without a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from space.arch import DeviceLimits
from space.columns import FloatColumn
from space.config import Config
from space.enumerate import PIECE_ROWS, Space, enumerate_space
from space.family import Family
from space.problem import Problem


@dataclass(frozen=True)
class Ranked:
    """Candidates of one problem, fastest estimate first.

    Attributes:
        space: where they come from.
        order: rows of `space.columns`.
        estimates_us: estimate of each row in that order.
    """

    space: Space
    order: np.ndarray[tuple[int], np.dtype[np.intp]]
    estimates_us: FloatColumn

    def __len__(self) -> int:
        return len(self.order)

    def config(self, place: int) -> Config:
        """The candidate at one place of the ranking."""
        return self.space.family.config_at(self.space.columns, int(self.order[place]))

    def configs(self, most: int | None = None) -> list[Config]:
        """The first `most` candidates."""
        return [self.config(place) for place in range(min(most or len(self), len(self)))]


def rank(space: Space, device: DeviceLimits, within: float | None = None) -> Ranked:
    """The candidates of `space` by estimated time; ties keep the enumeration's order.

    Args:
        within: keep only estimates up to this many times the best one.
    """
    parts = [space.columns.part(begin, begin + PIECE_ROWS) for begin in range(0, len(space), PIECE_ROWS)]
    estimates = np.concatenate([np.empty(0), *(space.family.estimate_us(part, device) for part in parts)])
    order = np.argsort(estimates, kind="stable")
    if within is not None and len(order):
        order = order[estimates[order] <= within * estimates[order[0]]]
    return Ranked(space, order, estimates[order])


def roofline_us(problem: Problem, device: DeviceLimits) -> float:
    """The time that no kernel beats: the larger of arithmetic at the sustained rate and unavoidable bytes."""
    compute = problem.flops / device.peak_tflops(problem.dtype) / 1e6
    return max(compute, problem.min_bytes / device.hbm_tbs / 1e6)


def predict(family: Family, problem: Problem, device: DeviceLimits) -> tuple[Config, float] | None:
    """The candidate with the best estimate and that estimate; None when nothing is legal."""
    ranked = rank(enumerate_space(family, problem), device)
    return (ranked.config(0), float(ranked.estimates_us[0])) if len(ranked) else None
