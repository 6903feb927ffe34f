"""The choice of a sampler for a problem's candidates, and what guides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from optuna.samplers import BaseSampler

from space.config import Config
from space.family import Family
from space.problem import Problem
from tuner.model.learned import LearnedModel
from tuner.sampler import LegalSampler
from tuner.search.expectation import pool_of
from tuner.search.snapped import SnappedSampler, inner_named

#: Our own sampler; every other word names one of Optuna's.
GUIDED: Final = "guided"


@dataclass(frozen=True)
class Guidance:
    """How a study searches.

    Attributes:
        sampler: `guided`, or `tpe`, `gp`, `cmaes`, `random`.
        seed: of Optuna's samplers; the guided one makes no random choice.
        model: what is expected of the candidates; the analytic model's estimate where there is none.
        winners: of similar problems, most similar first; the guided sampler tries them early.
    """

    sampler: str = GUIDED
    seed: int = 0
    model: LearnedModel | None = None
    winners: tuple[Config, ...] = ()


def sampler_for(
    guidance: Guidance, family: Family, problem: Problem, candidates: Sequence[Config], device: str
) -> BaseSampler:
    """A sampler over `candidates` that never repeats one.

    Raises:
        ProblemError: there is no such sampler, or a package that it needs is not installed.
    """
    model = guidance.model
    if model is not None and (model.facts.device, model.facts.family) != (device, family.name):
        model = None
    pool = pool_of(family, problem, candidates, device, model)
    if guidance.sampler == GUIDED:
        return LegalSampler(pool, [config.knobs for config in guidance.winners])
    return SnappedSampler(pool, inner_named(guidance.sampler, guidance.seed))
