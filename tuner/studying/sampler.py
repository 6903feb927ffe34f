"""LegalSampler: an Optuna sampler whose every proposal is a legal candidate that was not tried before.

It is handed a finite pool and keeps a belief about it (`tuner.studying.belief`). The first proposal is the
candidate that is expected to be fastest, the next ones are winners of similar problems where some are known,
the rest are those with the largest expected improvement. One proposal in `STRANGER_EVERY` must be unlike all
that were tried, whatever is expected of it: a model that is wrong about a whole region gets to see it.

Trials that are still running count: they narrow the belief around themselves, so that a batch spreads out.
The sampler keeps nothing that the study does not hold. A process that is killed loses nothing, and several
processes may propose for one study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.prediction.pool import Pool
from tuner.studying.belief import Belief

#: Of so many proposals, one is unlike all before it …
STRANGER_EVERY: Final = 8
#: … which means: its likeness to each of them is below this.
STRANGER_LIKENESS: Final = 0.5
#: By how much a candidate has to be faster to be worth mentioning: what ties count as.
MARGIN: Final = 0.02
#: Winners of similar problems that are tried before the belief decides.
MOST_SEEDS: Final = 3
#: Candidates that the belief covers; the others of a longer pool are proposed when these are used up.
MOST_BELIEVED: Final = 4096


class Exhausted(Exception):
    """Every candidate has been tried."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a search may still find.

    Attributes:
        chance: that an untried candidate is faster than the best by more than `margin`.
        gain: expected share of the best time that trying all of them would save.
        margin: as a share of the best time.
    """

    chance: float
    gain: float
    margin: float


class LegalSampler(BaseSampler):
    """Proposes from a pool; see the module.

    Args:
        pool: the candidates.
        seeds: parameter sets to try early, best first; those that are no candidate are passed over.
        relative: values are positive and compared by their ratio, as times are. Off: by their difference.
    """

    def __init__(self, pool: Pool, seeds: Sequence[Mapping[str, Any]] = (), *, relative: bool = True) -> None:
        self._pool = pool
        self._relative = relative
        places = dict.fromkeys(pool.place(seed) for seed in seeds)
        self._seeds = [place for place in places if place is not None][:MOST_SEEDS]
        self._view: _View | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters, always: a candidate is proposed as a whole."""
        return self._pool.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of one untried candidate.

        Raises:
            Exhausted: there is none left.
            ValueError: a trial of the study has a value that is no time, and `relative` is on.
        """
        view = self.view(study, but=trial.number)
        return self._pool.params(view.propose(self._seeds))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:  # noqa: ANN401  (Optuna's signature)
        """Never needed for a pool's parameters.

        Raises:
            KeyError: the objective suggests a parameter that the pool lacks.
        """
        raise KeyError(f"{param_name!r} is no parameter of the pool: it has {', '.join(self._pool.names)}")

    def outlook(self, study: optuna.Study, margin: float = MARGIN) -> Outlook:
        """What is left to find, given the trials so far."""
        return self.view(study).outlook(margin)

    def view(self, study: optuna.Study, but: int | None = None) -> _View:
        """The study as far as it has come, `but` one trial."""
        if self._view is None or self._view.study_name != study.study_name:
            self._view = _View(self._pool, study.study_name)
        sign = -1.0 if study.direction is StudyDirection.MAXIMIZE else 1.0
        self._view.catch_up(study.get_trials(deepcopy=False), but, lambda value: sign * self._cost(value))
        return self._view

    def _cost(self, value: float) -> float:
        if not self._relative:
            return value
        if value <= 0:
            raise ValueError(f"value {value} is no time: a sampler with relative=True compares positive values")
        return math.log(value)


class _View:
    """What one study has tried of a pool, and the belief that follows."""

    def __init__(self, pool: Pool, study_name: str) -> None:
        self.study_name = study_name
        self._pool = pool
        self._ranking = np.argsort(pool.expected, kind="stable")
        self._tried = np.zeros(len(pool), dtype=np.bool_)
        self._values: dict[int, float] = {}
        self._running: dict[int, int] = {}
        self._open: set[int] = set()
        self._next = 0
        self._rows = _believed(self._ranking)
        self._where = np.full(len(pool), -1, dtype=np.intp)
        self._where[self._rows] = np.arange(len(self._rows))
        self.belief = Belief(pool.features[self._rows], pool.expected[self._rows], pool.doubt)
        self._places: dict[int, int] = {}

    def catch_up(self, trials: Sequence[FrozenTrial], but: int | None, cost: Callable[[float], float]) -> None:
        """Takes in the trials that were added or ended since the last call."""
        waiting = [trials[number] for number in sorted(self._open)]
        for trial in [*waiting, *trials[self._next :]]:
            if trial.state.is_finished():
                self._open.discard(trial.number)
            else:
                self._open.add(trial.number)
            if trial.number != but and trial.params:
                self._take(trial, cost)
        self._next = len(trials)

    def _take(self, trial: FrozenTrial, cost: Callable[[float], float]) -> None:
        row = self._pool.place(trial.params)
        if row is None:
            self._check(trial)
            return
        self._tried[row] = True
        believed = int(self._where[row])
        if trial.number not in self._places and believed >= 0:
            self._places[trial.number] = self.belief.visit(believed)
        if not trial.state.is_finished():
            self._running[trial.number] = row
            return
        self._running.pop(trial.number, None)
        good = trial.state is TrialState.COMPLETE and trial.value is not None and math.isfinite(trial.value)
        place = self._places.get(trial.number)
        if good:
            assert trial.value is not None
            self._values[row] = cost(trial.value)
            if place is not None:
                self.belief.tell(place, self._values[row])
        elif place is not None:
            self.belief.fail(place)

    def _check(self, trial: FrozenTrial) -> None:
        """A candidate that the pool lacks may be part of a study; one that was half asked for would be repeated."""
        missing = [name for name in self._pool.names if name not in trial.params]
        if trial.state is TrialState.COMPLETE and missing:
            raise ValueError(
                f"trial {trial.number} has no {', '.join(missing)}: the objective suggests every parameter of the "
                f"pool, whether it needs it or not"
            )

    @property
    def incumbent(self) -> float:
        """Log of the best value; of the best expectation of a running trial before the first; else infinite."""
        if self._values:
            return min(self._values.values())
        running = [float(self._pool.expected[row]) for row in self._running.values()]
        return min(running, default=math.inf)

    def propose(self, seeds: Sequence[int]) -> int:
        """The row of the pool to try next."""
        if self._tried.all():
            raise Exhausted(f"all {len(self._pool)} candidates were tried")
        asked = int(self._tried.sum())
        seed = next((row for row in seeds if not self._tried[row]), None)
        if asked and asked <= len(seeds) and seed is not None:
            return seed
        fresh = ~self._tried[self._rows]
        if not fresh.any():
            return int(next(row for row in self._ranking if not self._tried[row]))
        if not asked:
            return int(self._rows[np.flatnonzero(fresh)[0]])
        strangers = fresh & (self.belief.closest < STRANGER_LIKENESS)
        due = asked % STRANGER_EVERY == STRANGER_EVERY - 1 and bool(strangers.any())
        return int(self._rows[self._most_promising(strangers if due else fresh)])

    def _most_promising(self, among: npt.NDArray[np.bool_]) -> int:
        improvement = np.where(among, self.belief.improvement(self.incumbent), -1.0)
        best = int(np.argmax(improvement))
        if improvement[best] > 1e-12:
            return best
        mean, spread = self.belief.moments()
        return int(np.argmin(np.where(among, (mean - self.incumbent) / spread, np.inf)))

    def outlook(self, margin: float) -> Outlook:
        """See `LegalSampler.outlook`."""
        if not self._values:
            return Outlook(1.0, 1.0, margin)
        untried = np.flatnonzero(~self._tried[self._rows])
        chance, gain = self.belief.remaining(untried, self.incumbent, margin, seed=len(self._values))
        return Outlook(chance, gain, margin)


def _believed(ranking: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Of a long ranking its head, and every so-manieth of the rest, so that no region is left out."""
    if len(ranking) <= MOST_BELIEVED:
        return ranking
    head = MOST_BELIEVED * 3 // 4
    rest = np.linspace(head, len(ranking) - 1, MOST_BELIEVED - head, dtype=np.intp)
    return np.concatenate([ranking[:head], ranking[rest]])
