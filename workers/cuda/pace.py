"""Pace: corrects for the clock, measured by one candidate that runs beside each of the others.

At the power limit a GPU's clock depends on its work of the last tenth of a second. The clock recovers while candidates
are built, loaded and verified, which flatters the next one: in recordings the same kernel differed by 6 % from one
screening to another. Samples of one screening agree, since they are taken within milliseconds. So one candidate, the
anchor, runs once before and once after each of the others, and their times are scaled to the clock of a GPU that never
rests.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workers.cuda.driver import Stream
from workers.cuda.timing import TimedGraph

#: Share of a heat-up that counts as settled: its end.
SETTLED: Final = 0.25
#: Where the anchors before and after a candidate differ by more, something held one up or the clock was moving: both
#: are taken again.
STEADY: Final = 0.03


@dataclass
class Pace:
    """The anchor of one round.

    Attributes:
        timed: its graph.
        settled_us: its time while the GPU never rests.
    """

    timed: TimedGraph
    settled_us: float

    @classmethod
    def of(cls, timed: TimedGraph, heating_us: Sequence[float]) -> Pace:
        """An anchor that was used to heat the GPU up; `heating_us` are its samples meanwhile, in order."""
        settled = heating_us[-max(int(len(heating_us) * SETTLED), 1) :]
        return cls(timed, statistics.median(settled))

    def start(self, stream: Stream) -> None:
        """Runs the anchor once; called before and after a candidate, never first on an idle GPU."""
        self.timed.start(stream, 1)

    def taken(self) -> Beside:
        """The anchor's samples since the last call, as a correction."""
        samples = self.timed.samples_us()
        # Disturbances only ever add to a replay's time.
        fastest = min(samples)
        return Beside(
            self.settled_us / fastest, max(samples) <= (1 + STEADY) * fastest, sum(samples) * self.timed.launches
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """The anchor beside one candidate.

    Attributes:
        pace: how fast the GPU was: 1 where it was settled, more where it was faster.
        steady: whether the anchor took as long before the candidate as after it.
        spent_us: GPU time that it took.
    """

    pace: float
    steady: bool
    spent_us: float
