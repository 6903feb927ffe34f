"""Pool: the finite list that a search proposes from, as distributions, features and expectations.

Knows nothing of GEMMs: anyone with a list of parameter sets can make one (`Pool.of`) and hand it to
`tuner.studying.sampler.LegalSampler` in an Optuna study of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

Thin = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

#: Doubt where nobody states one: nothing is expected of any candidate, and times differ by a factor of two.
NO_EXPECTATION_DOUBT: Final = 0.35


@dataclass(frozen=True)
class Pool:
    """What may be proposed, and what is thought of it beforehand.

    Attributes:
        names: of the parameters.
        values: one row a candidate, in the order of `names`; no row twice.
        distributions: of the parameters, for Optuna; they hold every value of every row.
        features: one row a candidate, constants dropped, each column of unit variance.
        expected: logarithm of each candidate's expected value; only differences matter.
        doubt: standard deviation of log(value / expected), an offset common to all aside.
    """

    names: tuple[str, ...]
    values: Sequence[tuple[Any, ...]]
    distributions: dict[str, BaseDistribution]
    features: Thin
    expected: Floats
    doubt: float

    @classmethod
    def of(
        cls,
        candidates: Sequence[Mapping[str, Any]],
        distributions: Mapping[str, BaseDistribution] | None = None,
        *,
        features: npt.ArrayLike | None = None,
        expected: npt.ArrayLike | None = None,
        doubt: float = NO_EXPECTATION_DOUBT,
    ) -> Pool:
        """A pool from parameter sets that all name the same parameters.

        Args:
            distributions: made from the values that occur where none are given.
            features: numbers in which alike candidates lie close; the parameters themselves by default.
            expected: of each candidate's value; positive. Nothing is expected by default.

        Raises:
            ValueError: no candidate, a candidate twice, or lengths that differ.
        """
        if not candidates:
            raise ValueError("a pool needs at least one candidate: give the legal ones")
        names = tuple(candidates[0])
        values = [tuple(candidate[name] for name in names) for candidate in candidates]
        axes = [_axis(values, place) for place in range(len(names))]
        made = {name: distribution_of(axis) for name, axis in zip(names, axes, strict=True)}
        rows = along(values, axes) if features is None else np.asarray(features, dtype=np.float64)
        hoped = np.zeros(len(values)) if expected is None else np.log(np.asarray(expected, dtype=np.float64))
        if not len(set(values)) == len(values) == len(rows) == len(hoped):
            raise ValueError(
                f"{len(values)} candidates, {len(set(values))} of them different, {len(rows)} rows of features, "
                f"{len(hoped)} expectations: give one of each for every candidate, and none twice"
            )
        return cls(names, values, dict(distributions or made), scaled(rows), hoped, doubt)

    def __len__(self) -> int:
        return len(self.values)

    def params(self, place: int) -> dict[str, Any]:
        """One candidate's parameters."""
        return dict(zip(self.names, self.values[place], strict=True))

    def place(self, params: Mapping[str, Any]) -> int | None:
        """Where these parameters stand; None when they are no candidate."""
        return self._places.get(tuple(params.get(name) for name in self.names))

    @cached_property
    def axes(self) -> tuple[list[Any], ...]:
        """For each parameter the values that occur, in order."""
        return tuple(_axis(self.values, place) for place in range(len(self.names)))

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], int]:
        return {row: place for place, row in enumerate(self.values)}


def distribution_of(domain: Sequence[Any]) -> BaseDistribution:
    """Evenly stepped whole numbers keep their order; everything else is a choice."""
    whole = [value for value in domain if isinstance(value, int) and not isinstance(value, bool)]
    steps = {after - before for before, after in pairwise(whole)}
    if len(whole) == len(domain) and len(steps) == 1:
        return IntDistribution(whole[0], whole[-1], step=steps.pop())
    return CategoricalDistribution(tuple(domain))


def scaled(features: Floats) -> Thin:
    """Columns brought to mean 0 and variance 1; those that do not vary are dropped."""
    if not len(features):
        return np.zeros((0, 0), dtype=np.float32)
    spread = features.std(axis=0)
    varies = spread > 1e-9 * np.maximum(np.abs(features).max(axis=0, initial=0), 1)
    kept = features[:, varies]
    return np.asarray((kept - kept.mean(axis=0)) / spread[varies], dtype=np.float32)


def along(values: Sequence[tuple[Any, ...]], axes: Sequence[Sequence[Any]]) -> Floats:
    """Candidates as points: each parameter's place on its axis, scaled to 0 … 1."""
    places = [{value: place / max(len(axis) - 1, 1) for place, value in enumerate(axis)} for axis in axes]
    return np.array([[axis[value] for axis, value in zip(places, row, strict=True)] for row in values])


def _axis(values: Sequence[tuple[Any, ...]], place: int) -> list[Any]:
    return sorted({row[place] for row in values}, key=_order)


def _order(value: Any) -> tuple[bool, Any]:  # noqa: ANN401  (a parameter of any kind)
    return isinstance(value, str), value
