"""Timing: launches rotated over cold operands inside a CUDA graph, replayed between events.

Replays are enqueued before anything waits for them, so that the host can prepare the next candidate meanwhile.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from workers.cuda.copies import OwnCopy
from workers.cuda.driver import Event, Graph, Stopwatch, Stream
from workers.measurement import median_interval

#: One replay lasts about this long: the events' resolution and the launch of the graph are negligible beside it.
REPLAY_US: Final = 1_500.0
#: Launches of one graph, where they are short and where they are long.
MIN_LAUNCHES: Final = 2
MIN_SHORT_LAUNCHES: Final = 20
SHORT_US: Final = 100.0
MAX_LAUNCHES: Final = 400
#: Timed replays of a screening, behind a first one that does not count.
SCREEN_REPLAYS: Final = 3
#: A candidate whose single launch takes this much longer than the round's best gets fewer replays. A single launch
#: includes the host's time for it, which scatters by the slack.
GIVE_UP_FACTOR: Final = 1.3
GIVE_UP_SLACK_US: Final = 20.0
GIVE_UP_REPLAYS: Final = 2
#: Rounds start with this much work of one rival: a cold clock would flatter the first one.
HEAT_UP_SECONDS: Final = 0.2
#: Screening samples farther apart than this share of their median are taken again, once.
STEADY_SPREAD: Final = 0.25

LaunchCopy = Callable[[OwnCopy], None]


class TimedGraph:
    """A candidate's launches as one graph; a sample is a replay's time divided by the number of launches.

    Args:
        launch: enqueues one product on `recorder`; it runs only when the graph is replayed.
        expected_us: of one launch; decides how many the graph holds.
        recorder: a stream that nothing else uses.
    """

    def __init__(self, launch: LaunchCopy, copies: Sequence[OwnCopy], expected_us: float, recorder: Stream) -> None:
        self.launches = launches_for(expected_us, len(copies))
        with recorder.capture() as made:
            for place in range(self.launches):
                launch(copies[place % len(copies)])
        self._graph: Graph = made[0]
        # The upload overlaps with another candidate's work, so that the first replay does not have to wait for it.
        self._graph.upload(recorder)
        self._uploaded: Event | None = Event()
        self._uploaded.record(recorder)
        self._watches = [Stopwatch() for _ in range(1 + SCREEN_REPLAYS)]
        self._pending = 0

    def start(self, stream: Stream, replays: int, between: Callable[[], None] = lambda: None) -> None:
        """Puts replays on the stream, each between events.

        Args:
            between: enqueues what runs behind each replay, outside its events.
        """
        self._await_upload(stream)
        while len(self._watches) < self._pending + replays:
            self._watches.append(Stopwatch())
        for watch in self._watches[self._pending : self._pending + replays]:
            with watch.around(stream):
                self._graph.launch(stream)
            between()
        self._pending += replays

    def _await_upload(self, stream: Stream) -> None:
        uploaded, self._uploaded = self._uploaded, None
        if uploaded is not None:
            uploaded.hold(stream)
            uploaded.destroy()

    def samples_us(self) -> tuple[float, ...]:
        """Microseconds of one launch, from each replay since the last call; waits for them."""
        watches, self._pending = self._watches[: self._pending], 0
        if watches:
            watches[-1].wait()
        return tuple(watch.us / self.launches for watch in watches)

    def heat_up(self, stream: Stream) -> list[float]:
        """Keeps the device busy until its clock has settled; the samples meanwhile, in microseconds of one launch."""
        taken: list[float] = []
        while sum(taken) * self.launches < HEAT_UP_SECONDS * 1e6:
            self.start(stream, SCREEN_REPLAYS)
            taken += self.samples_us()
        return taken

    def destroy(self) -> None:
        """Frees the graph and its events, once."""
        watches, self._watches = self._watches, []
        if watches:
            self._graph.destroy()
        if self._uploaded is not None:
            self._uploaded.destroy()
            self._uploaded = None
        for watch in watches:
            watch.destroy()


def launches_for(expected_us: float, copies: int) -> int:
    """Launches of one graph: about `REPLAY_US` long, every copy equally often."""
    fewest = MIN_SHORT_LAUNCHES if expected_us < SHORT_US else MIN_LAUNCHES
    wanted = min(max(REPLAY_US / max(expected_us, 0.1), fewest), MAX_LAUNCHES)
    turns = -(-int(wanted) // copies)
    if turns * copies > MAX_LAUNCHES:
        # The host takes as long for that many launches as the device does.
        turns -= 1
    return max(turns, 1) * copies


def hopeless(once_us: float, best_once_us: float) -> bool:
    """Whether a candidate is so far behind after one launch that it need not be timed closely."""
    return once_us > GIVE_UP_FACTOR * best_once_us + GIVE_UP_SLACK_US


def spread(samples_us: Sequence[float]) -> float:
    """Distance between the extremes, as a share of the median; of more than two samples the slowest is left out.

    One replay may be held up by something else; a kernel that is unsteady is so more than once.
    """
    ordered = sorted(samples_us)
    kept = ordered[:-1] if len(ordered) > 2 else ordered
    return (kept[-1] - kept[0]) / statistics.median(ordered)


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When finals have seen enough.

    Attributes:
        least_turns: never fewer.
        most_turns: never more, disturbed ones included.
        width: the 95 % interval of a rival's median, as a share of it, that counts as narrow.
        contenders: rivals whose median is this close to the best have to be narrow; the others may stay wide.
    """

    least_turns: int
    most_turns: int
    width: float = 0.005
    contenders: float = 0.03

    @classmethod
    def of(cls, turns: int) -> StoppingRule:
        """At least `turns`, at most three times as many."""
        return cls(turns, 3 * turns)

    def satisfied(self, by_rival: Sequence[Sequence[float]]) -> bool:
        """Whether the samples so far, one sequence a rival, are enough."""
        if len(by_rival[0]) < self.least_turns:
            return False
        medians = [statistics.median(samples) for samples in by_rival]
        near = min(medians) * (1 + self.contenders)
        leaders = (samples for samples, median in zip(by_rival, medians, strict=True) if median <= near)
        intervals = [median_interval(samples) for samples in leaders]
        return all(high - low <= self.width * low for low, high in intervals)
