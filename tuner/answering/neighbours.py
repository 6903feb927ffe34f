"""Neighbours: configs measured on problems near an untuned one, judged at the requested shape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from space.arch import VECTOR_BYTES
from space.config import Config
from space.devices import DeviceProfile
from space.elements import element_bytes
from space.explain import is_legal
from space.families.common import bare_twin
from space.family import family_named
from space.problem import Problem
from tuner.evidence.records import Best
from tuner.prediction.expectation import ANALYTIC_HIGH, ANALYTIC_LOW
from tuner.prediction.learned import LearnedModel
from workers.measurement import Policy

#: Largest distance of the asked shape from a measured one: the sum of |log2| over M, N and K.
REACH: Final = 1.0
#: Neighbours whose configs are compared.
MOST: Final = 3
#: A neighbour's config was measured, verified and won. It is served unless the predicted first choice is faster than
#: it by more than this factor.
CREDIT: Final = 1.10


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A config that was measured nearby.

    Attributes:
        best: the neighbour's.
        config: the neighbour's winner or runner-up; legal at the requested shape.
        time_us: expected at the requested shape: the measured time, scaled by the model's ratio of the two shapes.
        interval_us: 90 % interval of `time_us`; None if unknown.
        octaves: between the two shapes.
    """

    best: Best
    config: Config
    time_us: float
    interval_us: tuple[float, float] | None
    octaves: float


@dataclass(frozen=True, slots=True)
class Judge:
    """Expected times at any shape: from the learned model where it covers the family, else from the estimate."""

    profile: DeviceProfile
    model: LearnedModel | None

    def times_us(self, problem: Problem, configs: Sequence[Config]) -> list[float]:
        """Expected times of configs of one family."""
        family = family_named(configs[0].family)
        columns = family.columns(problem, configs, self.profile)
        if (model := self.learned(family.name, problem)) is not None:
            return [float(time) for time in model.predict(problem, columns).time_us]
        return [float(time) for time in family.estimate_us(columns, self.profile)]

    def interval_us(self, problem: Problem, config: Config, time_us: float) -> tuple[float, float] | None:
        """The 90 % interval of a config's time that was scaled to `problem`; None where no errors are known."""
        if (model := self.learned(config.family, problem)) is None:
            known = family_named(config.family).grounded
            return (time_us * ANALYTIC_LOW, time_us * ANALYTIC_HIGH) if known else None
        wider = model.widening(problem)
        return time_us * math.exp(model.facts.low * wider), time_us * math.exp(model.facts.high * wider)

    def outweighs(self, config: Config, neighbour: Neighbour, problem: Problem) -> bool:
        """Whether a predicted config is so much faster at `problem` that it outweighs the neighbour's measured win.

        The model may also predict that the neighbour's config is slower at the neighbour's own shape. There the config
        won, so that part of the predicted difference is an error of the model and does not count. Two families are
        compared where the model has learned both, as one reads operands in place that another has to pack first; where
        only one of them competes at the neighbour's shape, its win there says nothing of the other.
        """
        both, there = (neighbour.config, config), neighbour.best.problem
        alike = config.family == neighbour.config.family
        if not (alike or self._learned_all(both, problem)):
            return False
        won = alike or (self._learned_all(both, there) and is_legal(family_named(config.family), there, config,
                                                                    self.profile))  # fmt: skip
        error = max(self._ratio(there, *both), 1.0) if won else 1.0
        return self._ratio(problem, *both) > CREDIT * error

    def _learned_all(self, configs: Iterable[Config], problem: Problem) -> bool:
        return all(self.learned(config.family, problem) for config in configs)

    def _ratio(self, problem: Problem, one: Config, other: Config) -> float:
        """Expected time of one config, as a multiple of another's."""
        if one.family != other.family:
            return self.times_us(problem, [one])[0] / self.times_us(problem, [other])[0]
        ours, theirs = self.times_us(problem, [one, other])
        return ours / theirs

    def learned(self, family: str, problem: Problem) -> LearnedModel | None:
        """The learned model, if it covers the family."""
        return self.model.of(family, problem) if self.model else None


def best_neighbour(
    bests: Iterable[Best], problem: Problem, judge: Judge, policies: Sequence[Policy], wrong: Set[str] = frozenset()
) -> Neighbour | None:
    """The neighbours' config that is expected to be fastest at `problem`; None when nothing is near and legal.

    Args:
        bests: nearest first.
        policies: every one, most wanted first; times under one are never compared with times under another.
        wrong: texts of configs that were wrong at `problem`.
    """
    near = takewhile(lambda best: problem.distance(best.problem) <= REACH, bests)
    found = (_offered(best, problem, judge.profile, policies[0], wrong) for best in near)
    offers = islice(filter(None, found), MOST)
    rivals = [rival for best, configs in offers for rival in _rivals(best, configs, problem, judge)]

    def order(rival: Neighbour) -> tuple[int, float, float]:
        return policies.index(rival.best.policy), rival.time_us, rival.octaves

    return min(rivals, key=order, default=None)


def _offered(
    best: Best, problem: Problem, device: DeviceProfile, asked: Policy, wrong: Set[str]
) -> tuple[Best, list[Config]] | None:
    """The winner, and the runner-up of the same family, where they are legal at the requested shape, and not wrong."""
    both = (best.config, best.runner_up)
    # Only what was measured among kernels that let it start early is served so, and only where they are asked for.
    early = best.policy is asked is Policy.CHAIN_PDL
    alike = [config for config in both if config and config.family == best.config.family]
    configs = alike if early else [bare_twin(config) for config in alike]
    family = family_named(best.config.family)
    if not family.own and not _aligned_as(best.problem, problem):
        return None
    right = [config for config in configs if config.key not in wrong]
    legal = [config for config in right if is_legal(family, problem, config, device)]
    return (best, legal) if legal else None


def _aligned_as(measured: Problem, asked: Problem) -> bool:
    """Whether rows of every operand are aligned at least as well as where a config of the library was measured.

    No rule of ours knows which of its algorithms need that; it refuses them where rows are aligned worse.
    """
    return all(there <= here for there, here in zip(_alignments(measured), _alignments(asked), strict=True))


def _alignments(problem: Problem) -> list[int]:
    pitches = ((each.rows if each.column_major else each.columns, each.dtype) for each in problem.operands())
    # Alignment beyond the widest access changes nothing.
    return [math.gcd(pitch * element_bytes(dtype), VECTOR_BYTES) for pitch, dtype in pitches]


def _rivals(best: Best, configs: list[Config], problem: Problem, judge: Judge) -> Iterator[Neighbour]:
    """The configs measured there, with their expected times at the requested shape."""
    here, there = judge.times_us(problem, configs), judge.times_us(best.problem, [*configs, best.config])
    for place, config in enumerate(configs):
        # Only the model knows how far behind the runner-up was; it is never taken to be ahead.
        growth, lag = here[place] / there[place], max(there[place] / there[-1], 1.0)
        time_us = best.median_us * lag * growth
        interval_us = judge.interval_us(problem, config, time_us)
        yield Neighbour(best, config, time_us, interval_us, problem.distance(best.problem))
