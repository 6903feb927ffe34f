"""SnappedSampler: any Optuna sampler over a pool; each of its wishes is moved to the nearest untried candidate.

For comparison with `LegalSampler`, and for whoever prefers another search: TPE, GP, CMA-ES, random, or one of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from space.errors import ProblemError
from tuner.prediction.pool import Pool, along
from tuner.studying.sampler import Exhausted

#: Samplers of Optuna by the word that chooses them; GP needs PyTorch and SciPy, CMA-ES the package cmaes.
INNER: Final[dict[str, Callable[[int], BaseSampler]]] = {
    "random": lambda seed: RandomSampler(seed=seed),
    "tpe": lambda seed: TPESampler(seed=seed, multivariate=True, constant_liar=True),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
}


def inner_named(name: str, seed: int) -> BaseSampler:
    """One of Optuna's samplers.

    Raises:
        ProblemError: unknown, or a package that it needs is not installed.
    """
    if name not in INNER:
        raise ProblemError(f"sampler {name!r} is unknown: use guided or one of {', '.join(INNER)}")
    try:
        return INNER[name](seed)
    except ImportError as error:
        raise ProblemError(f"sampler {name!r} needs a package that is not installed ({error}): use guided") from error


class SnappedSampler(BaseSampler):
    """Proposes what `inner` wishes for, as an untried candidate.

    Args:
        pool: the candidates; ties in distance go to the one that is expected to be faster.
        inner: wishes for parameters one trial at a time; it sees the candidates that were tried in its place.
    """

    def __init__(self, pool: Pool, inner: BaseSampler) -> None:
        self._pool = pool
        self._inner = inner
        self._points = along(pool.values, pool.axes)
        self._tie = np.argsort(np.argsort(pool.expected, kind="stable")) * 1e-9

    def reseed_rng(self) -> None:
        """Of the inner sampler."""
        self._inner.reseed_rng()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters, always: a candidate is proposed as a whole."""
        return self._pool.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of one untried candidate.

        Raises:
            Exhausted: there is none left.
        """
        past = (other for other in study.get_trials(deepcopy=False) if other.number != trial.number)
        tried = [self._pool.place(each.params) for each in past]
        places = sorted({place for place in tried if place is not None})
        if len(places) == len(self._pool):
            raise Exhausted(f"all {len(self._pool)} candidates were tried")
        away = np.abs(self._points - self._point(self._wish(study, trial))).sum(axis=1) + self._tie
        away[places] = np.inf
        return self._pool.params(int(np.argmin(away)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401  (Optuna's signature)
        """Left to the inner sampler: a parameter that the pool lacks."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Told to the inner sampler."""
        self._inner.before_trial(study, trial)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Told to the inner sampler."""
        self._inner.after_trial(study, trial, state, values)

    def _wish(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        together = self._inner.infer_relative_search_space(study, trial)
        wish = dict(self._inner.sample_relative(study, trial, together)) if together else {}
        for name, distribution in self._pool.distributions.items():
            if name not in wish:
                wish[name] = self._inner.sample_independent(study, trial, name, distribution)
        return wish

    def _point(self, wish: dict[str, Any]) -> Any:  # noqa: ANN401  (one row of `along`)
        pool = self._pool
        return np.array([_place(axis, wish[name]) for axis, name in zip(pool.axes, pool.names, strict=True)])


def _place(axis: Sequence[Any], value: Any) -> float:  # noqa: ANN401  (a parameter of any kind)
    """Place of a value on an axis; numbers that do not occur lie between those that do, words in the middle."""
    steps = max(len(axis) - 1, 1)
    if value in axis:
        return axis.index(value) / steps
    if isinstance(value, int | float) and all(isinstance(known, int | float) for known in axis):
        return float(np.interp(value, axis, np.arange(len(axis)))) / steps
    return 0.5
