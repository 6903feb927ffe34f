"""LegalSampler: legal, never repeated, and better than chance; usable with any inner Optuna sampler."""

from __future__ import annotations

import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from space.arch import H200
from space.config import Config
from space.enumerate import enumerate_space
from space.family import family_named
from space.problem import Problem
from space.rank import rank
from tuner.sampler import STRUCTURE, Exhausted, LegalSampler, distributions

optuna.logging.set_verbosity(optuna.logging.ERROR)
FAMILY = family_named("sm90_wgmma")
PROBLEM = Problem.parse("1000x1000x1000")
KNOBS = distributions(FAMILY)


def candidates(most: int) -> list[Config]:
    ranked = rank(enumerate_space(FAMILY, PROBLEM), H200).configs()
    return ranked[:: len(ranked) // most][:most]


def ask(study: optuna.Study) -> tuple[optuna.Trial, Config]:
    trial = study.ask(KNOBS)
    return trial, FAMILY.config(trial.params)


@pytest.mark.parametrize("inner", [None, RandomSampler(seed=1)])
def test_every_candidate_is_proposed_once_and_then_it_is_exhausted(inner: BaseSampler | None) -> None:
    pool = candidates(60)
    study = optuna.create_study(sampler=LegalSampler(FAMILY, pool, inner))
    proposed = []
    for number in range(len(pool)):
        trial, config = ask(study)
        proposed.append(config)
        if number % 3 == 0:
            study.tell(trial, state=TrialState.FAIL)
        elif number % 3 == 1:
            study.tell(trial, float(config.number("tile_n")))
        # The rest stay pending: they count as tried.
    assert sorted(c.key for c in proposed) == sorted(c.key for c in pool)
    with pytest.raises(Exhausted):
        ask(study)


def test_the_first_proposals_differ_in_structure() -> None:
    study = optuna.create_study(sampler=LegalSampler(FAMILY, candidates(500)))
    configs = [ask(study)[1] for _ in range(16)]
    structures = {tuple(config[name] for name in STRUCTURE) for config in configs}
    assert len(structures) == 16


def test_what_earlier_runs_measured_is_not_proposed_again() -> None:
    pool = candidates(40)
    study = optuna.create_study(sampler=LegalSampler(FAMILY, pool))
    for config in pool[:30]:
        trial = optuna.trial.create_trial(params=config.knobs, distributions=KNOBS, value=1.0)
        study.add_trial(trial)
    rest = {ask(study)[1] for _ in range(10)}
    assert rest == set(pool[30:])


def test_the_search_finds_a_hidden_optimum_sooner_than_chance() -> None:
    pool = candidates(800)

    # A made-up objective that the ranking knows nothing of: best at one corner of the knobs.
    def cost(config: Config) -> float:
        return (
            abs(config.number("tile_n") - 96) / 8 + abs(config.number("stages") - 5) + (config["raster"] == "along_m")
        )

    goal = sorted(cost(config) for config in pool)[len(pool) // 100]
    study = optuna.create_study(sampler=LegalSampler(FAMILY, pool, seed=0))
    best = float("inf")
    for _ in range(60):
        trial, config = ask(study)
        study.tell(trial, cost(config))
        best = min(best, cost(config))
    assert best <= goal
