"""Rounds: propose → measure → record, the one path on which candidates are tried.

`gemmtune tune` walks it until its budget is spent; a round of a campaign walks it for some seconds, on any
node, and the next round goes on from what was recorded. Neither the store nor the device is known here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import optuna
from optuna.trial import TrialState, create_trial

from space.arch import DEVICES
from space.config import Config
from space.errors import ProblemError
from space.family import Family
from space.problem import Problem
from space.rank import roofline_us
from tuner.picks import enumeration_order
from tuner.sampler import Exhausted, distributions
from tuner.search.choice import Guidance, sampler_for
from workers.measurement import Measurement, Outcome, Stage
from workers.ports import Round

#: Proposals of one batch: enough to keep the compilers ahead of the device, few enough to learn from.
BATCH: Final = 16
#: Candidates that go into the interleaved finals.
FINALISTS: Final = 4
#: Bounds of a budget: more rounds of finals, or more candidates of one problem, have no use.
MOST_CANDIDATES: Final = 100_000
MOST_ROUNDS: Final = 1_000

# Every trial is told to the watcher; Optuna's own log would say it twice.
optuna.logging.set_verbosity(optuna.logging.WARNING)

_ALONE: Final = Guidance()

#: Told before a batch is measured: its stage and its candidates.
Announce = Callable[[Stage, Sequence[Config]], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """When a study stops. Earlier runs of the same study count.

    Attributes:
        candidates: how many are measured.
        seconds: wall time of this run, set-up excluded; None for no limit.
        rounds: interleaved rounds of the finals.
        target: stop screening once the best reaches this share of the roofline bound; None for no target.
    """

    candidates: int = 96
    seconds: float | None = None
    rounds: int = 30
    target: float | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("candidates", 1, MOST_CANDIDATES), ("rounds", 5, MOST_ROUNDS)):
            if not least <= getattr(self, name) <= most:
                raise ProblemError(f"{name} = {getattr(self, name)} is no budget: give {least} to {most:,}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ProblemError(f"seconds = {self.seconds} is no budget: give a positive number")
        if self.target is not None and not 0 < self.target <= 1:
            raise ProblemError(f"target = {self.target} is no share of the roofline bound: give one above 0, up to 1")


@dataclass(frozen=True, slots=True)
class Tried:
    """What a search has to know of a candidate that was screened.

    Attributes:
        median_us: infinite unless correct.
    """

    config: Config
    outcome: Outcome
    median_us: float = math.inf

    @classmethod
    def of(cls, measurement: Measurement) -> Tried:
        """From a measurement."""
        return cls(measurement.config, measurement.outcome, measurement.median_us)


class Search:
    """What one study knows, and what it tries next.

    Args:
        candidates: legal configs worth trying, best estimate first.
        device: GPU model; a target is a share of its roofline bound.
        tried: screened earlier.
        guidance: which sampler, and what it knows beforehand.

    Attributes:
        tried: everything screened, earlier runs included.
        ended: why no more is proposed, as a sentence; empty while there is.
    """

    def __init__(
        self, family: Family, problem: Problem, device: str, candidates: Sequence[Config], budget: Budget,
        tried: Sequence[Tried] = (), guidance: Guidance = _ALONE,
    ) -> None:  # fmt: skip
        self._family, self._candidates, self._budget = family, candidates, budget
        limits = DEVICES.get(device)
        self._bound_us = roofline_us(problem, limits) if limits else 0.0
        self._distributions = distributions(family)
        self._optuna = optuna.create_study(sampler=sampler_for(guidance, family, problem, candidates, device))
        self._pending: dict[Config, optuna.Trial] = {}
        self.tried = list(tried)
        self.ended = ""
        for entry in self.tried:
            self._optuna.add_trial(self._past_trial(entry))

    @property
    def total(self) -> int:
        """How many are tried when no target ends it earlier."""
        return min(self._budget.candidates, len(self._candidates))

    @property
    def failed(self) -> dict[str, int]:
        """How many did not end `correct`, by outcome."""
        return dict(Counter(entry.outcome.value for entry in self.tried if entry.outcome is not Outcome.CORRECT))

    def propose(self) -> list[Config]:
        """The next batch; empty once the search has ended."""
        self.ended = self._reason_to_end()
        if self.ended:
            return []
        self._pending = {}
        try:
            for _ in range(min(BATCH, self.total - len(self.tried))):
                trial = self._optuna.ask(self._distributions)
                self._pending[self._family.config(trial.params)] = trial
        except Exhausted:
            if not self._pending:
                self.ended = "every candidate worth trying was tried"
        return list(self._pending)

    def tell(self, measurement: Measurement) -> None:
        """How a proposed candidate, or one that was tried for another reason, ended."""
        entry = Tried.of(measurement)
        self.tried.append(entry)
        trial = self._pending.pop(entry.config, None)
        if trial is None:
            self._optuna.add_trial(self._past_trial(entry))
        elif entry.outcome is Outcome.CORRECT:
            self._optuna.tell(trial, entry.median_us)
        else:
            self._optuna.tell(trial, state=TrialState.FAIL)

    def finalists(self, most: int = FINALISTS) -> list[Config]:
        """The fastest correct candidates."""
        correct = [entry for entry in self.tried if entry.outcome is Outcome.CORRECT]
        ahead = sorted(correct, key=lambda entry: (entry.median_us, enumeration_order(entry.config)))
        return [entry.config for entry in ahead[:most]]

    def _reason_to_end(self) -> str:
        best_us = min((entry.median_us for entry in self.tried), default=math.inf)
        if self._budget.target is not None and self._bound_us >= self._budget.target * best_us:
            return f"the target of {self._budget.target:.0%} of the roofline bound is reached"
        if len(self.tried) < self.total:
            return ""
        if len(self._candidates) <= self._budget.candidates:
            return "every candidate worth trying was tried"
        return f"the budget of {self._budget.candidates} candidates is spent"

    def _past_trial(self, entry: Tried) -> optuna.trial.FrozenTrial:
        correct = entry.outcome is Outcome.CORRECT
        return create_trial(
            state=TrialState.COMPLETE if correct else TrialState.FAIL,
            value=entry.median_us if correct else None,
            params=entry.config.knobs,
            distributions=self._distributions,
        )


def screen(
    round_: Round,
    search: Search,
    announce: Announce = lambda stage, batch: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[Measurement]:
    """Proposes and measures, batch after batch, until the search has ended or `go_on` says no.

    Yields:
        Each measurement. The next batch is proposed after the last one of this batch was taken, so whoever
        records what is yielded has recorded it before the search goes on.
    """
    while go_on() and (batch := search.propose()):
        announce("screen", batch)
        for measurement in round_.screen(batch):
            search.tell(measurement)
            yield measurement
