"""Portfolio: about a thousand configs with a good one for almost every problem, so that an answer takes milliseconds.

A family has tens of thousands of legal candidates for a problem; enumerating them takes a hundred times as long as a
prediction. The portfolio holds the measured winners and the model's picks on a grid of shapes. Only `gemmtune tune`
enumerates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from space.columns import Columns
from space.config import Config, parse_knobs
from space.devices import DeviceProfile
from space.enumerate import enumerate_space
from space.explain import legal_mask
from space.families.common import plain_twin
from space.family import Family
from space.kinds.gemm import Gemm
from space.problem import Problem
from space.registry import family_named
from tuner.prediction.features import features_of

if TYPE_CHECKING:
    from tuner.prediction.learned import LearnedModel, Prediction

#: Extents of the grid: octaves of M, and typical N and K of real models' weights.
GRID_M: Final = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
GRID_N: Final = (576, 1024, 2112, 4096, 7168, 14336, 28672)
GRID_K: Final = (256, 1024, 2048, 4096, 7168, 14336)
#: Shapes over all kinds of problems, spread over the grid, and the fewest per kind.
SHAPES, LEAST_SHAPES = 400, 40
#: Configs per shape, and the portfolio's limit.
NAMED: Final = 6
MOST: Final = 1_024
#: Legal configs per grid shape that the model judges: those that the analytic model ranks first.
JUDGED: Final = 1_000
#: Portfolio configs that the model judges for an answer, and how many of them all trees judge.
ASKED, CLOSELY = 64, 16


def build_portfolio(
    model: LearnedModel, family: Family, limits: DeviceProfile, winners: Sequence[Config], kinds: Sequence[Problem],
    shapes: int = SHAPES,
) -> tuple[str, ...]:  # fmt: skip
    """The portfolio of a model: measured winners, then every shape's first choice, every shape's second, and so on.

    Args:
        winners: measured winners; the portfolio always has them.
        kinds: one problem for each kind (dtype, layout, epilogue) to serve.
        shapes: number of shapes over all kinds.
    """
    chosen = dict.fromkeys(winners)
    asked = _grid(max(shapes // len(kinds), min(LEAST_SHAPES, shapes)))
    lists = [_named(model, family, limits, kind.resized(m, n, k)) for kind in kinds for m, n, k in asked]
    for place in range(NAMED):
        chosen |= dict.fromkeys(named[place] for named in lists if place < len(named))
    return tuple(config.knobs_text for config in list(chosen)[:MOST])


def _grid(most: int) -> list[tuple[int, int, int]]:
    """Shapes spread over the grid; in every fourth one N, K or both are odd."""
    grid = list(itertools.product(GRID_M, GRID_N, GRID_K))
    shapes = [grid[place] for place in np.linspace(0, len(grid) - 1, min(most, len(grid)), dtype=int)]
    odd = itertools.cycle([(1, 0), (0, 1), (1, 1)])
    return [
        (m, n - less_n, k - less_k) if place % 4 == 3 else (m, n, k)
        for place, (m, n, k) in enumerate(shapes)
        for less_n, less_k in [next(odd)]
    ]


def _named(model: LearnedModel, family: Family, limits: DeviceProfile, problem: Problem) -> list[Config]:
    space = enumerate_space(family, problem, limits)
    if not len(space):
        return []
    estimate = family.estimate_us(space.columns, limits)
    columns = space.columns.take(np.argsort(estimate, kind="stable")[:JUDGED])
    time_us = model.predict(problem, columns).time_us
    return [family.config_at(columns, int(row)) for row in np.argsort(time_us, kind="stable")[:NAMED]]


def first_choice(model: LearnedModel, problem: Problem, limits: DeviceProfile) -> tuple[Config, Prediction, int] | None:
    """The portfolio's legal config with the shortest predicted time; None if none is legal.

    Returns:
        The config, the predictions of all judged configs, and the config's index among them.
    """
    family = family_named(model.facts.family)
    columns = _columns(model.facts.family, model.facts.portfolio, limits).for_problem(problem)
    legal = np.flatnonzero(legal_mask(family, columns))
    if not len(legal):
        return None
    columns = columns.take(legal)
    estimate_us = family.estimate_us(columns, limits)
    # A stable sort: which of equals a partition takes depends on the processor, and so would the answer.
    ahead = np.argsort(estimate_us, kind="stable")[:ASKED]
    columns = columns.take(ahead)
    features = features_of(family, problem, columns, limits, estimate_us[ahead])
    predicted = model.predict_features(problem, features, CLOSELY)
    place = int(np.argmin(predicted.time_us))
    return family.config_at(columns, place), predicted, place


@lru_cache(maxsize=8)
def _columns(family_name: str, portfolio: tuple[str, ...], limits: DeviceProfile) -> Columns:
    family = family_named(family_name)
    # Winners of older recordings started early, among copies of themselves.
    configs = dict.fromkeys(plain_twin(family.config(parse_knobs(text))) for text in portfolio)
    return family.columns(Gemm(1, 1, 1), [*configs], limits)
