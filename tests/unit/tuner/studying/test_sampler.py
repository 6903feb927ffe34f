"""LegalSampler: legal, never repeated, better than chance; Optuna's own samplers in its place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.errors import ProblemError
from space.kinds.gemm import Gemm
from space.rank import rank
from space.registry import family_named
from tuner.prediction.coordinates import Coordinates
from tuner.prediction.expectation import pool_of
from tuner.prediction.pool import Pool
from tuner.studying.choice import Guidance, sampler_for
from tuner.studying.sampler import STRANGER_EVERY, STRANGER_LIKENESS, Exhausted, LegalSampler

H200 = profile_named("NVIDIA H200")

optuna.logging.set_verbosity(optuna.logging.ERROR)
FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("1000x1000x1000")
KNOBS = Coordinates((FAMILY,)).distributions
RANKED = rank(enumerate_space(FAMILY, PROBLEM), H200)


def candidates(most: int) -> list[Config]:
    step = len(RANKED) // most
    return [RANKED.config(place * step) for place in range(most)]


def sampler(configs: list[Config], name: str = "guided", winners: list[Config] | None = None) -> BaseSampler:
    return sampler_for(Guidance(name, winners=tuple(winners or ())), PROBLEM, configs, H200.name)


def ask(study: optuna.Study) -> tuple[optuna.Trial, Config]:
    trial = study.ask(KNOBS)
    return trial, FAMILY.config(trial.params)


@pytest.mark.parametrize("name", ["guided", "tpe", "random"])
def test_every_candidate_is_proposed_once_and_then_it_is_exhausted(name: str) -> None:
    pool = candidates(60)
    study = optuna.create_study(sampler=sampler(pool, name))
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


def test_one_proposal_in_so_many_is_unlike_all_before_it() -> None:
    configs = candidates(500)
    pool = pool_of(PROBLEM, configs, H200.name)
    own = LegalSampler(pool)
    study = optuna.create_study(sampler=own)
    unlike = []
    for _ in range(3 * STRANGER_EVERY):
        closest = own.view(study).belief.closest.copy()
        place = pool.place(ask(study)[0].params)
        assert place is not None
        # The belief's rows are the pool's, best expectation first.
        believed = int(np.flatnonzero(np.argsort(pool.expected, kind="stable") == place)[0])
        unlike.append(closest[believed] < STRANGER_LIKENESS)
    assert all(unlike[STRANGER_EVERY - 1 :: STRANGER_EVERY])
    assert not all(unlike)


def test_winners_of_similar_problems_are_tried_early() -> None:
    configs = candidates(300)
    winners = [configs[200], configs[100], FAMILY.config({"tile_m": 192, "tile_n": 8, "consumer_warpgroups": 3})]
    study = optuna.create_study(sampler=sampler(configs, winners=winners))
    first = [ask(study)[1] for _ in range(3)]
    assert first == [configs[0], configs[200], configs[100]]


def test_what_earlier_runs_measured_is_not_proposed_again() -> None:
    pool = candidates(40)
    study = optuna.create_study(sampler=sampler(pool))
    for config in pool[:30]:
        study.add_trial(optuna.trial.create_trial(params=config.knobs, distributions=KNOBS, value=1.0))
    stranger = FAMILY.config({"tile_m": 192, "consumer_warpgroups": 3, "tile_n": 8})
    study.add_trial(optuna.trial.create_trial(params=stranger.knobs, distributions=KNOBS, value=1.0))
    rest = {ask(study)[1] for _ in range(10)}
    assert rest == set(pool[30:])


def test_two_samplers_of_one_study_never_propose_the_same() -> None:
    pool = candidates(50)
    study = optuna.create_study(sampler=sampler(pool))
    other = optuna.load_study(study_name=study.study_name, storage=study._storage, sampler=sampler(pool))
    proposed = [ask(each)[1] for _ in range(20) for each in (study, other)]
    assert len(set(proposed)) == 40


@pytest.mark.parametrize("name", ["guided", "tpe"])
def test_the_search_finds_a_hidden_optimum_sooner_than_chance(name: str) -> None:
    pool = candidates(800)

    # A made-up objective that the ranking knows nothing of: best at one corner of the knobs.
    def cost(config: Config) -> float:
        away = abs(config.number("tile_n") - 192) / 8 + abs(config.number("stages") - 5)
        return 10.0 + away + (config["raster"] == "along_m")

    goal = sorted(cost(config) for config in pool)[len(pool) // 100]
    study = optuna.create_study(sampler=sampler(pool, name))
    best = float("inf")
    for _ in range(60):
        trial, config = ask(study)
        study.tell(trial, cost(config))
        best = min(best, cost(config))
    assert best <= goal


@pytest.mark.parametrize(("direction", "relative", "value"), [
    ("minimize", True, lambda x: 1.0 + (x - 7) ** 2), ("maximize", False, lambda x: 3.0 - (x - 7) ** 2),
])  # fmt: skip
def test_it_serves_a_study_that_knows_no_gemm(direction: str, relative: bool, value: Callable[[int], float]) -> None:
    pool = Pool.of([{"x": x, "mode": mode} for x in range(40) for mode in ("a", "b")], doubt=1.0)
    study = optuna.create_study(direction=direction, sampler=LegalSampler(pool, relative=relative))

    def objective(trial: optuna.Trial) -> float:
        away = 0.5 * (trial.suggest_categorical("mode", ["a", "b"]) == "a")
        worth = value(trial.suggest_int("x", 0, 39))
        return worth + away if direction == "minimize" else worth - away

    study.optimize(objective, n_trials=30)
    assert study.best_params == {"mode": "b", "x": 7}


def test_an_objective_that_asks_for_less_than_a_candidate_is_told_so() -> None:
    study = optuna.create_study(sampler=LegalSampler(Pool.of([{"x": x, "y": x} for x in range(5)])))
    with pytest.raises(ValueError, match="suggests every parameter"):
        study.optimize(lambda trial: 1.0 + trial.suggest_int("x", 0, 4), n_trials=2)


def test_a_value_that_is_no_time_is_refused() -> None:
    pool = Pool.of([{"x": x} for x in range(5)])
    study = optuna.create_study(sampler=LegalSampler(pool))
    study.tell(study.ask(pool.distributions), -1.0)
    with pytest.raises(ValueError, match="relative=True"):
        study.ask(pool.distributions)


def test_an_unknown_sampler_is_one_sentence() -> None:
    with pytest.raises(ProblemError, match="guided"):
        sampler(candidates(5), "swarm")
