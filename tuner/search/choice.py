"""The choice of a sampler for a problem's candidates, by word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from optuna.samplers import BaseSampler

from space.config import Config
from space.family import Family
from space.problem import Problem
from tuner.sampler import LegalSampler
from tuner.search.expectation import pool_of
from tuner.search.snapped import SnappedSampler, inner_named

#: Our own sampler; every other word names one of Optuna's.
GUIDED: Final = "guided"


def sampler_for(
    name: str,
    family: Family,
    problem: Problem,
    candidates: Sequence[Config],
    device: str,
    seed: int = 0,
    winners: Sequence[Config] = (),
) -> BaseSampler:
    """A sampler over `candidates` that never repeats one.

    Args:
        name: `guided`, or `tpe`, `gp`, `cmaes`, `random`.
        seed: of Optuna's samplers; the guided one makes no random choice.
        winners: of similar problems, most similar first; the guided one tries them early.

    Raises:
        ProblemError: the name is none of these, or a package that it needs is not installed.
    """
    pool = pool_of(family, problem, candidates, device)
    if name == GUIDED:
        return LegalSampler(pool, [config.knobs for config in winners])
    return SnappedSampler(pool, inner_named(name, seed))
