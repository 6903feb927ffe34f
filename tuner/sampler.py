"""LegalSampler: an Optuna sampler whose every proposal is a legal candidate that was not tried before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from space.config import Config
from space.family import Family
from space.knobs import Knob

#: Knobs that make two candidates structurally different, so that the first batch is spread over them.
STRUCTURE: Final = ("tile_m", "tile_n", "consumer_warpgroups", "cluster_m", "cluster_n", "epilogue")
#: First trials, taken from the top of the ranking, one a structure.
STARTUP_TRIALS: Final = 24


def distributions(family: Family) -> dict[str, BaseDistribution]:
    """The family's knobs as Optuna distributions; a trial's params are a config's knobs."""
    return {knob.name: _distribution(knob) for knob in family.knobs}


def _distribution(knob: Knob) -> BaseDistribution:
    """Evenly stepped numbers keep their order; everything else is a choice."""
    numbers = [value for value in knob.domain if isinstance(value, int)]
    steps = {after - before for before, after in pairwise(numbers)}
    if len(numbers) == len(knob.domain) and len(steps) == 1:
        return IntDistribution(numbers[0], numbers[-1], step=steps.pop())
    return CategoricalDistribution(knob.domain)


class Exhausted(Exception):
    """Every candidate has been tried."""


class LegalSampler(BaseSampler):
    """Proposes from an enumerated list of legal candidates, ranked best guess first.

    The first trials walk down the ranking, one of each structure. After them every other proposal is what
    an inner Optuna sampler suggests, moved to the nearest untried candidate; the rest are the untried
    neighbours of the best trial. Pending trials count as tried.

    Args:
        family: of the candidates.
        candidates: legal configs without repeats, fastest estimate first.
        inner: any Optuna sampler with a relative search space; TPE by default.
        seed: of the default inner sampler.
    """

    def __init__(
        self, family: Family, candidates: Sequence[Config], inner: BaseSampler | None = None, seed: int = 0
    ) -> None:
        self._family = family
        self._candidates = list(candidates)
        self._place = {config.values: place for place, config in enumerate(self._candidates)}
        self._inner = inner or TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
        )
        self._coordinates = np.array([_coordinates(family.knobs, config) for config in self._candidates])
        self._startup = list(self._startup_order())

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All knobs, always: a candidate is proposed as a whole."""
        return distributions(self._family)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The knobs of one untried candidate.

        Raises:
            Exhausted: there is none left.
        """
        trials = study.get_trials(deepcopy=False)
        tried = self._tried(trials, trial)
        if tried.all():
            raise Exhausted(f"all {len(self._candidates)} candidates were tried")
        return self._candidates[self._propose(study, trial, search_space, trials, tried)].knobs

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401  (Optuna's signature)
        """Never needed for a family's knobs.

        Raises:
            KeyError: the objective suggests a parameter that is no knob of the family.
        """
        raise KeyError(f"{param_name!r} is no knob of {self._family.name}")

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Lets the inner sampler see how the trial ended."""
        self._inner.after_trial(study, trial, state, values)

    def _propose(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
        trials: Sequence[FrozenTrial],
        tried: npt.NDArray[np.bool_],
    ) -> int:
        fresh_start = next((place for place in self._startup if not tried[place]), None)
        if fresh_start is not None and int(tried.sum()) < STARTUP_TRIALS:
            return fresh_start
        done = [past for past in trials if past.state is TrialState.COMPLETE]
        if trial.number % 2 == 0 or not done:
            wish = self._inner.sample_relative(study, trial, search_space)
        else:
            wish = min(done, key=lambda past: past.value or np.inf).params
        if not wish:
            return int(np.flatnonzero(~tried)[0])
        return self._nearest_untried(self._family.config(wish), tried)

    def _nearest_untried(self, wish: Config, tried: npt.NDArray[np.bool_]) -> int:
        """Ties go to the candidate that is ranked higher."""
        away = np.abs(self._coordinates - _coordinates(self._family.knobs, wish)).sum(axis=1)
        away[tried] = np.inf
        return int(np.argmin(away))

    def _tried(self, trials: Sequence[FrozenTrial], now: FrozenTrial) -> npt.NDArray[np.bool_]:
        tried = np.zeros(len(self._candidates), dtype=np.bool_)
        names = [knob.name for knob in self._family.knobs]
        for trial in trials:
            if trial.number != now.number and trial.params:
                place = self._place.get(tuple((name, trial.params.get(name, "")) for name in names))
                if place is not None:
                    tried[place] = True
        return tried

    def _startup_order(self) -> Iterator[int]:
        seen: set[tuple[object, ...]] = set()
        for place, config in enumerate(self._candidates):
            knobs = config.knobs
            structure = tuple(knobs.get(name) for name in STRUCTURE)
            if structure not in seen:
                seen.add(structure)
                yield place
            if len(seen) >= STARTUP_TRIALS:
                return


def _coordinates(knobs: Sequence[Knob], config: Config) -> npt.NDArray[np.float64]:
    """A config as a point: each knob's place in its domain, scaled to 0 … 1; words are 0 or 1 apart."""
    return np.array([knob.domain.index(config[knob.name]) / max(len(knob.domain) - 1, 1) for knob in knobs])


def spread(ranked: Sequence[Config], most: int) -> list[Config]:
    """`most` of the ranked candidates: half from the top, half one of each structure in turn."""
    chosen = dict.fromkeys(ranked[: most // 2])
    groups: dict[tuple[object, ...], list[Config]] = {}
    for config in ranked:
        knobs = config.knobs
        groups.setdefault(tuple(knobs.get(name) for name in STRUCTURE), []).append(config)
    depth = 0
    while len(chosen) < min(most, len(ranked)):
        for group in groups.values():
            if depth < len(group) and len(chosen) < most:
                chosen.setdefault(group[depth])
        depth += 1
    return list(chosen)
