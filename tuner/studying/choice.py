"""The choice of a sampler for a problem's candidates, and what guides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from optuna.samplers import BaseSampler

from space.config import Config
from space.problem import Problem
from tuner.prediction.coordinates import Coordinates
from tuner.prediction.expectation import pool_of
from tuner.prediction.files import model_for
from tuner.prediction.learned import LearnedModel
from tuner.studying.sampler import LegalSampler
from tuner.studying.snapped import SnappedSampler, inner_named

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
        why: which model that is, or why there is none, in one sentence; empty where nobody looked for one.
    """

    sampler: str = GUIDED
    seed: int = 0
    model: LearnedModel | None = None
    winners: tuple[Config, ...] = ()
    why: str = ""


def guidance_for(device: str, model_dir: Path, sampler: str = GUIDED, seed: int = 0) -> Guidance:
    """What a tune of `device` goes by: a sampler, and the model of that device, one trained in `model_dir` first."""
    choice = model_for(device, model_dir)
    return Guidance(sampler, seed, choice.model, why=choice.why)


def sampler_for(guidance: Guidance, problem: Problem, candidates: Sequence[Config], device: str) -> BaseSampler:
    """A sampler over `candidates`, of whatever families, that never repeats one.

    A trial's parameters are those of `Coordinates.of(candidates)`.

    Raises:
        ProblemError: there is no such sampler, or a package that it needs is not installed.
    """
    model = guidance.model
    if model is not None and model.facts.device != device:
        model = None
    pool = pool_of(problem, candidates, device, model)
    if guidance.sampler == GUIDED:
        stand = Coordinates.of(candidates)
        known = {family.name for family in stand.families}
        return LegalSampler(pool, [stand.params(config) for config in guidance.winners if config.family in known])
    return SnappedSampler(pool, inner_named(guidance.sampler, guidance.seed))
