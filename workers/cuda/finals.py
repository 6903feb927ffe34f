"""Finals: rivals take turns, so that drift of the clock affects all of them alike."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from space.config import Config
from workers.cuda.bench import Bench, Ready
from workers.cuda.clocks import DISTURBING
from workers.cuda.driver import CudaError
from workers.cuda.timing import SCREEN_REPLAYS, StoppingRule
from workers.cuda.verification import Verdict
from workers.measurement import Clocks, Measurement, Policy

#: A turn whose SM clock is this far from the median of the turns is repeated. At the power limit readings scatter by
#: two or three steps of 15 MHz from one turn to the next; anything beyond that is drift.
CLOCK_BAND: Final = 0.05


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: one time per rival, and the clocks while the last of them ran."""

    times_us: tuple[float, ...]
    clocks: Clocks


@dataclass
class Rival:
    """A candidate in the finals."""

    ready: Ready
    verdict: Verdict


class Finals:
    """The rivals of one problem: added one by one, then run together."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rivals: list[Rival] = []

    def add(self, config: Config, digest: str, policy: Policy) -> str:
        """Loads and verifies a rival; returns why it is wrong, empty where it is right.

        Raises:
            CudaError: it failed.
        """
        ready = self._bench.ready(config, digest, policy)
        verdict = self._bench.verify(ready)
        if verdict.reason:
            ready.discard()
        else:
            self._rivals.append(Rival(ready, verdict))
        return verdict.reason

    def add_baselines(self, policy: Policy) -> None:
        """Adds the library's first choice, and the fastest of its candidates where that is another one."""
        found = [*self._baselines(policy)]
        if not found:
            return
        first, (_, fastest) = found[0][1], min(found, key=lambda timed: timed[0])
        for _, rival in found:
            if rival is first or rival is fastest:
                self._rivals.append(rival)
            else:
                rival.ready.discard()

    def run(self, turns: int) -> list[Measurement]:
        """Takes turns until the stopping rule is satisfied; disturbed turns don't count."""
        if not self._rivals:
            return []
        rule, taken = StoppingRule.of(turns), list[Turn]()
        first = self._rivals[0].ready.timed
        self._bench.busy_us += sum(first.heat_up(self._bench.stream)) * first.launches
        self._turn(0)
        while len(taken) < rule.most_turns:
            taken.append(self._turn(len(taken)))
            kept = undisturbed(taken)
            if kept and rule.satisfied([[one.times_us[place] for one in kept] for place in range(len(self._rivals))]):
                break
        kept = undisturbed(taken)
        remark = ""
        if len(kept) < turns:
            remark = f"{len(taken) - len(kept)} of {len(taken)} turns had an unsteady clock"
            kept = taken
        measured = [
            self._bench.measured(
                rival.ready, "final", tuple(one.times_us[place] for one in kept), kept[-1].clocks, rival.verdict, remark
            )
            for place, rival in enumerate(self._rivals)
        ]
        self.drop()
        return measured

    def drop(self) -> None:
        """Frees the rivals."""
        for rival in self._rivals:
            rival.ready.discard()
        self._rivals = []

    def _turn(self, number: int) -> Turn:
        """Runs every rival once, in a new order each time, and reads the clocks meanwhile."""
        order = order_of(number, len(self._rivals))
        for place in order:
            self._rivals[place].ready.timed.start(self._bench.stream, 1)
        clocks = self._bench.monitor.read()
        times = [0.0] * len(order)
        for place in order:
            timed = self._rivals[place].ready.timed
            (times[place],) = timed.samples_us()
            self._bench.busy_us += times[place] * timed.launches
        return Turn(tuple(times), clocks)

    def _baselines(self, policy: Policy) -> Iterator[tuple[float, Rival]]:
        """The library's correct candidates, each with a brief time; one runs while the next one is made ready."""
        running: Rival | None = None
        for config in self._bench.baselines:
            ready = self._baseline(config, policy)
            if running:
                yield self._brief_us(running), running
            running = self._verified(ready) if ready else None
            if running:
                running.ready.timed.start(self._bench.stream, 1 + SCREEN_REPLAYS)
        if running:
            yield self._brief_us(running), running

    def _baseline(self, config: Config, policy: Policy) -> Ready | None:
        try:
            return self._bench.ready(config, "", policy)
        except CudaError as error:
            if error.sticky:
                raise
            # A library may refuse some of its own candidates when they run.
            return None

    def _verified(self, ready: Ready) -> Rival | None:
        verdict = self._bench.verify(ready)
        if verdict.reason:
            ready.discard()
            return None
        return Rival(ready, verdict)

    def _brief_us(self, running: Rival) -> float:
        timed = running.ready.timed
        taken = timed.samples_us()
        self._bench.busy_us += sum(taken) * timed.launches
        return statistics.median(taken[1:])


def order_of(number: int, count: int) -> list[int]:
    """The order in which `count` rivals run in a turn.

    Random rather than rotated: a rival that always ran behind the same one would inherit the clock that it leaves.
    """
    return random.Random(number).sample(range(count), count)


def undisturbed(turns: list[Turn]) -> list[Turn]:
    """Turns whose SM clock is near the median of all, and in which the card did not protect itself."""
    middle = statistics.median(one.clocks.sm_mhz for one in turns)
    return [
        one
        for one in turns
        if abs(one.clocks.sm_mhz - middle) <= CLOCK_BAND * middle and not DISTURBING & set(one.clocks.throttle_reasons)
    ]
