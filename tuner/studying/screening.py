"""Screening: propose, measure, record. Every candidate takes this one path.

`gemmtune tune` screens until its budget is spent. A campaign's round screens for some seconds on any node, and the next
round goes on from what was recorded. This module knows neither the store nor the device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import optuna
from optuna.trial import TrialState, create_trial

from space.config import Config
from space.devices import find_profile
from space.explain import is_legal, legal_among
from space.families.common import early_twin
from space.family import family_named
from space.problem import Problem
from space.rank import power_decides, roofline_us
from space.structures import by_structure
from tuner.counts import counted
from tuner.evidence.picks import enumeration_order
from tuner.prediction.trials import distributions_of, params_of
from tuner.studying.finalists import fastest, near, one_of_each_structure
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.order import Outlook
from tuner.studying.records import FINALISTS, JUDGED_AFTER, Budget, Trial
from workers.measurement import Measurement, Outcome, Stage
from workers.ports import Round

#: Finalists that are timed once more with programmatic dependent launch.
TWINS: Final = 2
#: The last candidates of a budget, where power decides, at most a sixth of it: of each structure that is near the
#: fastest, the first expected config, if it was not tried. It is the finalist of its structure, unless it is slow.
FIRST_OF_STRUCTURES: Final = 8
#: (candidates tried so far, size of the next batch): small while each result still changes what comes next, then large
#: enough to keep the compilers ahead of the device.
BATCHES: Final = ((16, 4), (64, 8))
LARGEST_BATCH: Final = 16

# The watcher hears of every trial; Optuna's own log would say it twice.
optuna.logging.set_verbosity(optuna.logging.WARNING)

_ALONE: Final = Guidance()

#: Called before a batch is measured, with its stage and its candidates.
Announce = Callable[[Stage, Sequence[Config]], None]


def batch_size(tried: int) -> int:
    """Number of candidates in the next batch."""
    return next((size for below, size in BATCHES if tried < below), LARGEST_BATCH)


class Search:
    """The search of one study: its results so far and its next candidates. Optuna holds its trials.

    Args:
        candidates: legal configs worth trying, best estimate first, of one family or of several that compete.
        device: GPU model; a target is a share of its roofline bound.
        tried: trials of earlier runs.
        guidance: the learned model and the winners that the order of the candidates follows.

    Attributes:
        tried: all trials, including those of earlier runs.
        ended: why the search has ended, as a sentence; empty while it continues.
    """

    def __init__(
        self, problem: Problem, device: str, candidates: Sequence[Config], budget: Budget,
        tried: Sequence[Trial] = (), guidance: Guidance = _ALONE,
    ) -> None:  # fmt: skip
        self._problem, self._profile, self._budget = problem, find_profile(device), budget
        self._bound_us = roofline_us(problem, self._profile) if self._profile else 0.0
        self._power_decides = power_decides(problem, self._profile)
        self._order = order_for(guidance, problem, candidates, device)
        # Every trial's parameters are given: the sampler has nothing to choose.
        self._optuna = optuna.create_study(sampler=optuna.samplers.RandomSampler())
        self._pending: dict[Config, optuna.Trial] = {}
        self.tried = list(tried)
        self.ended = ""
        self._left = set(candidates) - {entry.config for entry in tried}
        # Of earlier trials those that can still be served: no other reaches a target.
        correct = self._still_legal([entry for entry in tried if entry.outcome is Outcome.CORRECT])
        self._best_us = min((entry.median_us for entry in correct), default=math.inf)
        for entry in self.tried:
            self._order.tell(entry.config, entry.median_us)
            self._add_trial(entry)

    @property
    def total(self) -> int:
        """The number of candidates to try, unless a target ends the search earlier.

        Earlier trials count, those of configs that are no candidates by now too.
        """
        return min(self._budget.candidates, len(self.tried) + len(self._left))

    @property
    def failed(self) -> dict[str, int]:
        """The number of failed candidates, by outcome."""
        return dict(Counter(entry.outcome.value for entry in self.tried if entry.outcome is not Outcome.CORRECT))

    @property
    def pending(self) -> list[Config]:
        """Candidates proposed and not measured yet."""
        return list(self._pending)

    def propose(self) -> list[Config]:
        """The next batch; empty once the search has ended, or while only pending candidates are left.

        Pending candidates count towards the budget.
        """
        begun = len(self.tried) + len(self._pending)
        if self._pending and begun >= self.total:
            # This is asked many times while the last candidates are measured, and judging what is left takes long.
            return []
        self.ended = self._reason_to_end()
        if self.ended:
            return []
        fresh = self._next(begun)
        for config in fresh:
            self._optuna.enqueue_trial(params_of(config))
            self._pending[config] = self._optuna.ask(distributions_of(family_named(config.family)))
        return fresh

    def tell(self, measurement: Measurement) -> None:
        """Records a candidate's result, proposed here or not."""
        entry = Trial.of(measurement)
        self.tried.append(entry)
        self._left.discard(entry.config)
        self._best_us = min(self._best_us, entry.median_us)
        trial = self._pending.pop(entry.config, None)
        self._order.tell(entry.config, entry.median_us)
        if trial is None:
            self._add_trial(entry)
        elif entry.outcome is Outcome.CORRECT:
            self._optuna.tell(trial, entry.median_us)
        else:
            self._optuna.tell(trial, state=TrialState.FAIL)

    def finalists(
        self, least: int = FINALISTS, also: Sequence[Config] = (), without: Collection[str] = ()
    ) -> list[Config]:
        """The candidates to measure in full, and the fastest once more as they are launched among kernels that allow an
        early start. Where power decides they come as expected, otherwise the fastest first.

        Args:
            least: fewer than usual after finals that failed: then only so many go, and nothing is added.
            also: go too where they are correct; behind the others, so that they win no tie under `sustained`.
            without: texts of configs that can't win, which would take the places of others; unless there are none.
        """
        ahead = self._ahead()
        ahead = [entry for entry in ahead if entry.config.key not in without] or ahead
        if not ahead:
            return []
        leaders = one_of_each_structure(ahead, self._order.place) if self._power_decides else fastest(ahead)
        chosen = [entry.config for entry in leaders]
        right = {entry.config for entry in ahead} - set(chosen)
        added = [config for config in dict.fromkeys(also) if config in right]
        twins = (early_twin(self._problem, config) for config in chosen[:TWINS])
        added += [twin for twin in twins if twin and self._legal(twin)]
        if least < FINALISTS:
            chosen, added = chosen[:least], []
        if self._power_decides:
            chosen.sort(key=self._order.place)
        return chosen + added

    def _next(self, begun: int) -> list[Config]:
        """The next batch of a search in which so many are tried or pending."""
        left, most = self.total - begun, batch_size(begun)
        if not self._power_decides:
            return self._order.take(min(most, left))
        exploring = left - min(FIRST_OF_STRUCTURES, self.total // 6)
        if exploring > 0:
            return self._order.take(min(most, exploring))
        leading = by_structure(near(self._ahead()), lambda entry: entry.config)
        return self._order.take(left, self._order.first_of_each(leading))

    def _ahead(self) -> list[Trial]:
        """Correct trials that may still be served, fastest first."""
        correct = self._still_legal([entry for entry in self.tried if entry.outcome is Outcome.CORRECT])
        return sorted(correct, key=lambda entry: (entry.median_us, enumeration_order(entry.config)))

    def _still_legal(self, tried: list[Trial]) -> list[Trial]:
        """Those that today's rules accept; all on an unknown device."""
        if self._profile is None:
            return tried
        legal = legal_among(self._problem, (entry.config for entry in tried), self._profile)
        return [entry for entry in tried if entry.config in legal]

    def _legal(self, config: Config) -> bool:
        return self._profile is not None and is_legal(family_named(config.family), self._problem, config, self._profile)

    def outlook(self) -> Outlook | None:
        """The gain that more measurements may bring; None before the first correct candidate."""
        return self._order.outlook(self._best_us)

    def _reason_to_end(self) -> str:
        if self._budget.target is not None and self._bound_us >= self._budget.target * self._best_us:
            return f"the target of {self._budget.target:.0%} of the roofline bound is reached"
        if not self._left:
            return "every measurable candidate was tried"
        if len(self.tried) < self._budget.candidates:
            return self._too_little_to_gain()
        return f"the budget of {counted(self._budget.candidates, 'candidate')} is spent"

    def _too_little_to_gain(self) -> str:
        if self._budget.gain is None or len(self.tried) < JUDGED_AFTER:
            return ""
        outlook = self.outlook()
        if outlook is None or outlook.gain >= self._budget.gain:
            return ""
        return f"measuring on is expected to gain {outlook.gain:.2%}, less than the {self._budget.gain:.2%} asked for"

    def _add_trial(self, entry: Trial) -> None:
        correct = entry.outcome is Outcome.CORRECT
        self._optuna.add_trial(
            create_trial(
                state=TrialState.COMPLETE if correct else TrialState.FAIL,
                value=entry.median_us if correct else None,
                params=params_of(entry.config),
                distributions=distributions_of(family_named(entry.config.family)),
            )
        )


def screen(
    round_: Round,
    search: Search,
    announce: Announce = lambda stage, batch: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[Measurement]:
    """Proposes and measures, batch after batch, until the search has ended or `go_on` says no.

    A device that would have to wait for the next batch, or for its builds, gets it while others are still open.
    Candidates that are open when `go_on` says no are dropped: the next run of the study proposes them again.

    Yields:
        Each measurement. The search goes on only when the next one is asked for: a caller that records each
        measurement as it comes has recorded it before the next proposal.
    """

    def propose() -> list[Config]:
        batch = search.propose() if go_on() else []
        if batch:
            # Finding the candidate that ended a worker needs all that were under way.
            announce("screen", search.pending)
        return batch

    while batch := propose():
        for measurement in round_.screen(batch, propose):
            search.tell(measurement)
            yield measurement
            if not go_on():
                return
