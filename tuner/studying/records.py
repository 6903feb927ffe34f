"""Records of a study: its budget, the candidates that it tried, and what its key says of them.

The service needs these alone: the search behind them imports Optuna.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from space.config import Config
from space.errors import ProblemError
from space.plug import Family
from workers.measurement import Measurement, Outcome, Provenance

#: Candidates that go into the finals; where power doesn't decide up to the second number if screening can't tell them
#: apart, and everywhere up to the third with one of every other structure that is near: screening runs cooler than the
#: finals, and clocks under full load fall further for one structure than for another.
FINALISTS, MOST_FINALISTS, MOST_WITH_STRUCTURES = 4, 8, 14
#: Candidates to try before judging what more of them may gain.
JUDGED_AFTER: Final = 12
#: Bounds of a budget: more turns of the finals, or more candidates of one problem, have no use.
MOST_CANDIDATES: Final = 100_000
MOST_TURNS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Budget:
    """When a study stops. Earlier runs of the same study count.

    Attributes:
        candidates: how many are measured.
        seconds: wall time of this run, set-up excluded; None for no limit.
        turns: fewest turns that the finalists take under `chain`, where it decides what is served.
        target: stop screening once the best reaches this share of the roofline bound; None for no target.
        gain: stop screening once the expected gain of measuring on falls below this share of the best time; None for no
            limit.
    """

    candidates: int = 96
    seconds: float | None = None
    turns: int = 30
    target: float | None = None
    gain: float | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("candidates", 1, MOST_CANDIDATES), ("turns", 5, MOST_TURNS)):
            if not least <= getattr(self, name) <= most:
                raise ProblemError(f"{name} = {getattr(self, name)} is not a valid budget: give {least} to {most:,}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ProblemError(f"seconds = {self.seconds} is not a valid budget: give a positive number")
        if self.target is not None and not 0 < self.target <= 1:
            raise ProblemError(f"target = {self.target} is not a share of the roofline bound: give one up to 1")
        if self.gain is not None and not 0 < self.gain < 1:
            raise ProblemError(f"gain = {self.gain} is not a share of the best time: give one below 1, as in 0.01")
        if self.gain is not None and self.candidates <= JUDGED_AFTER:
            raise ProblemError(
                f"gain = {self.gain} and candidates = {self.candidates} contradict each other: gains are judged after "
                f"{JUDGED_AFTER} candidates; give more of them, or leave gain out"
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """A screened candidate.

    Attributes:
        median_us: infinite unless correct.
        noise: range of its samples, as a share of the median.
    """

    config: Config
    outcome: Outcome
    median_us: float = math.inf
    noise: float = 0.0

    @classmethod
    def of(cls, measurement: Measurement) -> Trial:
        return cls.timed(measurement.config, measurement.outcome, measurement.median_us, measurement.samples_us)

    @classmethod
    def timed(cls, config: Config, outcome: Outcome, median_us: float | None, samples_us: Sequence[float]) -> Trial:
        if outcome is not Outcome.CORRECT or median_us is None:
            # A report may have times of what was wrong.
            return cls(config, outcome)
        return cls(config, outcome, median_us, (max(samples_us) - min(samples_us)) / median_us if samples_us else 0.0)


def standing(tried: Sequence[Trial], wrong: Collection[str]) -> list[Trial]:
    """Trials of a study, those whose build was found wrong elsewhere as wrong: they can't win, would take finalists'
    places, and leave nothing to gain. Where none else is right they stay: finals need some, which the library wins.

    Args:
        wrong: texts of their configs.
    """
    right = any(trial.outcome is Outcome.CORRECT and trial.config.key not in wrong for trial in tried)
    return [Trial(each.config, Outcome.WRONG_RESULT) if right and each.config.key in wrong else each for each in tried]


def names_of(families: Sequence[Family]) -> str:
    """Name of a study's competing families: `sm90_wgmma`, or `sm90_wgmma+gemv`."""
    return "+".join(family.name for family in families)


def source_of(provenance: Provenance) -> str:
    """Digest of kernels, compiler, driver, library and rotation; only studies with the same digest may be merged."""
    # Without a rotation it is what it was before there were any.
    words = (str(word) for word in provenance.program if word != 0)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
