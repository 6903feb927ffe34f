"""Timing: launches rotated over cold operands inside a CUDA graph, replayed between events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from workers.cuda.driver import Event, Graph, Stream
from workers.cuda.operands import Copy

#: One replay lasts about this long, so that the events' resolution and the graph's own launch vanish in it.
REPLAY_US: Final = 1_500.0
FEWEST_LAUNCHES: Final = 4
MOST_LAUNCHES: Final = 400
#: Timed replays of a screening; the first one before them is not counted.
SCREEN_REPLAYS: Final = 5
#: A candidate this much slower than the round's best is not worth its remaining replays.
GIVE_UP_FACTOR: Final = 1.5
#: A round starts with this much work of its first correct candidate: a cold clock flatters whoever is first.
HEAT_UP_SECONDS: Final = 0.2

LaunchCopy = Callable[[Copy], None]


class TimedGraph:
    """A candidate's launches as one graph; a sample is a replay's time over the number of launches."""

    def __init__(self, launch: LaunchCopy, copies: Sequence[Copy], stream: Stream) -> None:
        self._stream = stream
        once_us = _once_us(launch, copies, stream)
        self.launches = launches_for(once_us, len(copies))
        with stream.capture() as made:
            for place in range(self.launches):
                launch(copies[place % len(copies)])
        self._graph: Graph = made[0]

    def sample_us(self) -> float:
        """Microseconds of one launch, from one replay."""
        return self._graph.replay_us(self._stream) / self.launches

    def screen(self, best_us: float) -> tuple[float, ...]:
        """Samples of a screening; fewer where the candidate is hopeless beside `best_us`."""
        self.sample_us()
        samples: list[float] = []
        while len(samples) < SCREEN_REPLAYS:
            samples.append(self.sample_us())
            if len(samples) == 2 and min(samples) > GIVE_UP_FACTOR * best_us:
                break
        return tuple(samples)

    def heat_up(self) -> None:
        """Keeps the device busy until its clock has settled."""
        until = time.monotonic() + HEAT_UP_SECONDS
        while time.monotonic() < until:
            self.sample_us()

    def destroy(self) -> None:
        """Frees the graph."""
        self._graph.destroy()


def launches_for(once_us: float, copies: int) -> int:
    """Launches of one graph: about `REPLAY_US` long, every copy equally often."""
    wanted = min(max(REPLAY_US / max(once_us, 0.1), FEWEST_LAUNCHES), MOST_LAUNCHES)
    return max(-(-int(wanted) // copies), 1) * copies


def _once_us(launch: LaunchCopy, copies: Sequence[Copy], stream: Stream) -> float:
    """A first guess at one launch's time, from a few in a row without a graph."""
    begin, end = Event(), Event()
    begin.record(stream)
    for place in range(FEWEST_LAUNCHES):
        launch(copies[place % len(copies)])
    end.record(stream)
    stream.synchronize()
    once_us = begin.until_us(end) / FEWEST_LAUNCHES
    begin.destroy()
    end.destroy()
    return once_us
