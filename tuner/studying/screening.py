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

from space.config import Config
from space.devices import find_profile
from space.errors import ProblemError
from space.problem import Problem
from space.rank import roofline_us
from space.registry import family_named
from tuner.evidence.picks import enumeration_order
from tuner.prediction.coordinates import Coordinates
from tuner.studying.batches import batch_size
from tuner.studying.choice import GUIDED, Guidance, sampler_for
from tuner.studying.rungs import contenders
from tuner.studying.sampler import Exhausted, LegalSampler, Outlook
from workers.measurement import Measurement, Outcome, Stage
from workers.ports import Round

#: Candidates that go into the interleaved finals; up to the second number where screening can't tell them apart, and
#: up to the third with the best of every other structure that is near: screening runs cooler than the finals, and
#: clocks under full load fall further for one structure than for another.
FINALISTS, MOST_FINALISTS, MOST_WITH_STRUCTURES = 4, 8, 14
#: How far behind the fastest, as a share of its time, the best of a structure still goes into the finals.
NEAR_STRUCTURE: Final = 0.05
#: What measuring on may gain is judged after so many candidates, not before.
JUDGED_AFTER: Final = 12
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
        gain: stop screening once what measuring on is expected to gain falls below this share of the best time;
            None to go on whatever is expected.
    """

    candidates: int = 96
    seconds: float | None = None
    rounds: int = 30
    target: float | None = None
    gain: float | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("candidates", 1, MOST_CANDIDATES), ("rounds", 5, MOST_ROUNDS)):
            if not least <= getattr(self, name) <= most:
                raise ProblemError(f"{name} = {getattr(self, name)} is no budget: give {least} to {most:,}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ProblemError(f"seconds = {self.seconds} is no budget: give a positive number")
        if self.target is not None and not 0 < self.target <= 1:
            raise ProblemError(f"target = {self.target} is no share of the roofline bound: give one above 0, up to 1")
        if self.gain is not None and not 0 < self.gain < 1:
            raise ProblemError(f"gain = {self.gain} is no share of the best time: give one between 0 and 1, as 0.01")
        if self.gain is not None and self.candidates <= JUDGED_AFTER:
            raise ProblemError(
                f"gain = {self.gain} and candidates = {self.candidates} contradict each other: gains are judged after "
                f"{JUDGED_AFTER} candidates; give more of them, or leave gain out"
            )


@dataclass(frozen=True, slots=True)
class Tried:
    """What a search has to know of a candidate that was screened.

    Attributes:
        median_us: infinite unless correct.
        noise: how far its samples lie apart, as a share of the median.
    """

    config: Config
    outcome: Outcome
    median_us: float = math.inf
    noise: float = 0.0

    @classmethod
    def of(cls, measurement: Measurement) -> Tried:
        """From a measurement."""
        samples = measurement.samples_us
        noise = (max(samples) - min(samples)) / measurement.median_us if samples else 0.0
        return cls(measurement.config, measurement.outcome, measurement.median_us, noise)


class Search:
    """What one study knows, and what it tries next.

    Args:
        candidates: legal configs worth trying, best estimate first, of one family or of several that compete.
        device: GPU model; a target is a share of its roofline bound.
        tried: screened earlier.
        guidance: which sampler, and what it knows beforehand.

    Attributes:
        tried: everything screened, earlier runs included.
        ended: why no more is proposed, as a sentence; empty while there is.
    """

    def __init__(
        self, problem: Problem, device: str, candidates: Sequence[Config], budget: Budget,
        tried: Sequence[Tried] = (), guidance: Guidance = _ALONE,
    ) -> None:  # fmt: skip
        self._candidates, self._budget = candidates, budget
        if budget.gain is not None and guidance.sampler != GUIDED:
            raise ProblemError(
                f"gain = {budget.gain} and sampler {guidance.sampler} contradict each other: only {GUIDED} knows what "
                f"may be gained; leave one of them out"
            )
        limits = find_profile(device)
        self._bound_us = roofline_us(problem, limits) if limits else 0.0
        self._stand = Coordinates.of(candidates)
        self._sampler = sampler_for(guidance, problem, candidates, device)
        self._optuna = optuna.create_study(sampler=self._sampler)
        self._pending: dict[Config, optuna.Trial] = {}
        self.tried = list(tried)
        self.ended = ""
        for entry in self.tried:
            self._add_past(entry)

    @property
    def total(self) -> int:
        """How many are tried when no target ends it earlier."""
        return min(self._budget.candidates, len(self._candidates))

    @property
    def failed(self) -> dict[str, int]:
        """How many did not end `correct`, by outcome."""
        return dict(Counter(entry.outcome.value for entry in self.tried if entry.outcome is not Outcome.CORRECT))

    @property
    def pending(self) -> list[Config]:
        """Proposed, and not told yet."""
        return list(self._pending)

    def propose(self) -> list[Config]:
        """The next batch; empty once the search has ended, or while only pending ones are left.

        What is pending counts: it narrows what is believed around it, and it is part of the budget.
        """
        begun = len(self.tried) + len(self._pending)
        if self._pending and begun >= self.total:
            # Asked again and again while the last ones are measured: to judge what is left takes its time.
            return []
        self.ended = self._reason_to_end()
        if self.ended:
            return []
        fresh: list[Config] = []
        try:
            for _ in range(min(batch_size(begun), self.total - begun)):
                trial = self._optuna.ask(self._stand.distributions)
                config = self._stand.config(trial.params)
                self._pending[config] = trial
                fresh.append(config)
        except Exhausted:
            if not self._pending:
                self.ended = "every candidate worth trying was tried"
        return fresh

    def tell(self, measurement: Measurement) -> None:
        """How a proposed candidate, or one that was tried for another reason, ended."""
        entry = Tried.of(measurement)
        self.tried.append(entry)
        trial = self._pending.pop(entry.config, None)
        if trial is None:
            self._add_past(entry)
        elif entry.outcome is Outcome.CORRECT:
            self._optuna.tell(trial, entry.median_us)
        else:
            self._optuna.tell(trial, state=TrialState.FAIL)

    def finalists(self, least: int = FINALISTS) -> list[Config]:
        """The fastest correct candidates, and the best of each other structure that is near.

        Args:
            least: fewer when a round has failed before: then only the fastest go, and no structure is added.
        """
        correct = [entry for entry in self.tried if entry.outcome is Outcome.CORRECT]
        ahead = sorted(correct, key=lambda entry: (entry.median_us, enumeration_order(entry.config)))
        if least < FINALISTS:
            return [entry.config for entry in ahead[:least]]
        kept = contenders([(entry.median_us, entry.noise) for entry in ahead], least, MOST_FINALISTS)
        chosen = [entry.config for entry in ahead[:kept]]
        seen = {family_named(config.family).structure_of(config) for config in chosen}
        for entry in ahead[kept:]:
            structure = family_named(entry.config.family).structure_of(entry.config)
            if entry.median_us > ahead[0].median_us * (1 + NEAR_STRUCTURE) or len(chosen) >= MOST_WITH_STRUCTURES:
                break
            if structure not in seen:
                seen.add(structure)
                chosen.append(entry.config)
        return chosen

    def outlook(self) -> Outlook | None:
        """What measuring on may still gain; None when the sampler has no belief about it, or nothing was told."""
        if not isinstance(self._sampler, LegalSampler) or not any(math.isfinite(e.median_us) for e in self.tried):
            return None
        return self._sampler.outlook(self._optuna)

    def _reason_to_end(self) -> str:
        best_us = min((entry.median_us for entry in self.tried), default=math.inf)
        if self._budget.target is not None and self._bound_us >= self._budget.target * best_us:
            return f"the target of {self._budget.target:.0%} of the roofline bound is reached"
        if len(self.tried) < self.total:
            return self._too_little_to_gain()
        if len(self._candidates) <= self._budget.candidates:
            return "every candidate worth trying was tried"
        return f"the budget of {self._budget.candidates} candidates is spent"

    def _too_little_to_gain(self) -> str:
        if self._budget.gain is None or len(self.tried) < JUDGED_AFTER:
            return ""
        outlook = self.outlook()
        if outlook is None or outlook.gain >= self._budget.gain:
            return ""
        return f"measuring on is expected to gain {outlook.gain:.2%}, less than the {self._budget.gain:.2%} asked for"

    def _add_past(self, entry: Tried) -> None:
        if entry.config.family not in {family.name for family in self._stand.families}:
            # Of a family that has no candidate here: it says nothing of those that there are.
            return
        correct = entry.outcome is Outcome.CORRECT
        self._optuna.add_trial(
            create_trial(
                state=TrialState.COMPLETE if correct else TrialState.FAIL,
                value=entry.median_us if correct else None,
                params=self._stand.params(entry.config),
                distributions=self._stand.distributions,
            )
        )


def screen(
    round_: Round,
    search: Search,
    announce: Announce = lambda stage, batch: None,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[Measurement]:
    """Proposes and measures, batch after batch, until the search has ended or `go_on` says no.

    A device that would have to wait for the next batch, or for its builds, is given it while others are still open.
    Those that are open when `go_on` says no are left: whoever goes on with the study proposes them anew.

    Yields:
        Each measurement. Nothing is proposed between a measurement and the next one's being asked for, so whoever
        records what is yielded has recorded it before the search goes on.
    """

    def propose() -> list[Config]:
        batch = search.propose() if go_on() else []
        if batch:
            # Whoever has to tell which candidate ended a worker must know of all that are under way.
            announce("screen", search.pending)
        return batch

    while batch := propose():
        for measurement in round_.screen(batch, propose):
            search.tell(measurement)
            yield measurement
            if not go_on():
                return
