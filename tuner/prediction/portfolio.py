"""Portfolio: three thousand configs with a good one for almost every problem, so that an answer takes milliseconds.

A family has tens of thousands of legal candidates for a problem; enumerating them takes a hundred times as long as a
prediction. The portfolio holds the measured winners and the model's picks for shapes drawn at random. Only
`gemmtune tune` enumerates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from space.columns import Columns
from space.config import Config
from space.devices import DeviceProfile
from space.enumerate import enumerate_space
from space.errors import ConfigError
from space.explain import legal_mask, worth_mask
from space.families.common import plain_twin
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from space.plug import Family
from space.problem import Problem
from tuner.prediction.features import features_of
from workers.measurement import Policy

if TYPE_CHECKING:
    from tuner.prediction.learned import LearnedModel, Prediction

#: Powers of two between which M, N and K of the shapes lie.
M_OCTAVES: Final = (0.0, 14.0)
N_OCTAVES: Final = (7.0, 15.0)
K_OCTAVES: Final = (7.0, 15.0)
#: N and K are multiples of this, and so is M from `WHOLE_M` on; as many as `ODD_SHARE` of N, and of K, are less by one
#: of the first `LESS` powers of two: so every alignment to up to 16 bytes has shapes.
WHOLE, WHOLE_M = 64, 256
ODD_SHARE, LESS = 0.3, 4
#: Shapes over all kinds of problems. Half as many leave out what deep K or 192 rows need.
SHAPES: Final = 3_000
#: Most shapes of a kind that are drawn to find some that the family takes.
DRAWS: Final = 20_000
#: Configs per shape, and the portfolio's limit.
NAMED: Final = 6
MOST: Final = 3_072
#: Legal configs per shape that the model judges: those that the analytic model ranks first; and how many of them, those
#: that its first trees rank first, all of its trees judge.
JUDGED, CLOSELY = 1_000, 100
#: Portfolio configs that the model judges for an answer: those that the analytic model ranks first of all, and of those
#: that break no worth rule. It has learned of no others, and where the analytic model prefers others, as teams of lanes
#: without work, these would be all that is judged.
ASKED, ASKED_WORTH = 64, 32


def build_portfolio(
    model: LearnedModel, family: Family, limits: DeviceProfile, winners: Sequence[Config], kinds: Sequence[Problem],
    shapes: int,
) -> tuple[str, ...]:  # fmt: skip
    """The portfolio of a model: measured winners, then every shape's first choice, every shape's second, and so on.

    Args:
        winners: measured winners; the portfolio always has them.
        kinds: one problem for each kind (dtype, layout, epilogue) to serve.
        shapes: number of shapes over all kinds.
    """
    chosen = dict.fromkeys(winners)
    taken = partial(_taught, family, limits)
    lists = [_named(model, family, limits, problem) for problem in _shapes(kinds, shapes, taken)]
    for place in range(NAMED):
        chosen |= dict.fromkeys(named[place] for named in lists if place < len(named))
    return tuple(config.knobs_text for config in list(chosen)[:MOST])


def _taught(family: Family, limits: DeviceProfile, problem: Problem) -> bool:
    """Whether the family competes for a problem, so that measurements of such may have taught its model."""
    return family.takes(problem, limits) and family.competes_on(limits.arch.name, problem)


def _shapes(kinds: Sequence[Problem], count: int, taken: Callable[[Problem], bool]) -> Iterator[Problem]:
    """About `count` problems that are taken, as many of each kind, the same in every run.

    Args:
        kinds: one problem for each kind; a kind of which `DRAWS` shapes are not taken has none.
    """
    random = np.random.default_rng(0)
    for kind in kinds:
        drawn = islice(_endless(kind, random), DRAWS)
        yield from islice(filter(taken, drawn), max(count // len(kinds), 1))


def _endless(kind: Problem, random: np.random.Generator) -> Iterator[Problem]:
    """Problems of a kind, with extents that are even on a logarithmic scale."""

    def whole(octaves: tuple[float, float]) -> int:
        less = 2 ** int(random.integers(LESS)) if random.random() < ODD_SHARE else 0
        return int(2 ** random.uniform(*octaves)) // WHOLE * WHOLE - less

    while True:
        m = int(2 ** random.uniform(*M_OCTAVES))
        m = m // WHOLE * WHOLE if m >= WHOLE_M else m
        yield kind.resized(m, whole(N_OCTAVES), whole(K_OCTAVES))


def _named(model: LearnedModel, family: Family, limits: DeviceProfile, problem: Problem) -> list[Config]:
    space = enumerate_space(family, problem, limits)
    if not len(space):
        return []
    estimate = family.estimate_us(space.columns, limits)
    ahead = np.argsort(estimate, kind="stable")[:JUDGED]
    columns = space.columns.take(ahead)
    features = features_of(family, problem, columns, limits, estimate[ahead])
    time_us = model.predict_features(problem, features, CLOSELY).time_us
    return [family.config_at(columns, int(row)) for row in np.argsort(time_us, kind="stable")[:NAMED]]


@dataclass(frozen=True)
class FirstChoice:
    """The config that an answer predicts.

    Attributes:
        model: of the config's family.
        prediction: of all configs that were judged.
        place: the config's among them.
    """

    config: Config
    model: LearnedModel
    prediction: Prediction
    place: int

    @property
    def time_us(self) -> float:
        """Predicted time of a screening."""
        return float(self.prediction.time_us[self.place])

    def under(self, policy: Policy) -> tuple[float, float, float]:
        """What finals under a policy would measure, with its 90 % interval, in microseconds."""
        return self.model.under(policy, self.prediction, self.place)


def first_choice(
    model: LearnedModel, problem: Problem, limits: DeviceProfile, without: Set[str] = frozenset()
) -> FirstChoice | None:
    """The config with the shortest predicted time in the portfolios of all families; None if none is legal.

    Args:
        without: texts of configs that it must not be.
    """
    models = (model.of(family.name, problem) for family in families_for(limits.arch.name, problem))
    found = (_first_of(each, problem, limits, without) for each in models if each)
    return min((one for one in found if one), key=lambda one: one.time_us, default=None)


def _first_of(
    model: LearnedModel, problem: Problem, limits: DeviceProfile, without: Set[str]
) -> FirstChoice | None:
    family = family_named(model.facts.family)
    columns = _columns(model.facts.family, model.facts.portfolio, limits).for_problem(problem)
    legal = np.flatnonzero(legal_mask(family, columns))
    if not len(legal):
        return None
    columns = columns.take(legal)
    estimate_us = family.estimate_us(columns, limits)
    # A stable sort: which of equals a partition takes depends on the processor, and so would the answer.
    order = np.argsort(estimate_us, kind="stable")
    worth = worth_mask(family, columns)
    ahead = order[np.isin(order, [*order[:ASKED], *order[worth[order]][:ASKED_WORTH]])]
    columns = columns.take(ahead)
    # All trees judge each: what few trees find fast is often fast only to them.
    predicted = model.predict_features(problem, features_of(family, problem, columns, limits, estimate_us[ahead]))
    # Where few times tell candidates apart, the rules on what is worth trying know more than the forest does.
    handicap = np.where(worth[ahead], 1.0, 1 + model.facts.doubt)
    for place in map(int, np.argsort(predicted.time_us * handicap, kind="stable")):
        if (config := family.config_at(columns, place)).key not in without:
            return FirstChoice(config, model, predicted, place)
    return None


@lru_cache(maxsize=8)
def _columns(family_name: str, portfolio: tuple[str, ...], limits: DeviceProfile) -> Columns:
    family = family_named(family_name)
    # Winners of older recordings started early, among copies of themselves.
    configs = dict.fromkeys(plain_twin(config) for text in portfolio if (config := _known(family, text)))
    return family.columns(Gemm(1, 1, 1), [*configs], limits)


def _known(family: Family, text: str) -> Config | None:
    """A config of a portfolio; None where it has a value that this version of its family no longer has."""
    try:
        return family.parse(text)
    except ConfigError:
        return None
