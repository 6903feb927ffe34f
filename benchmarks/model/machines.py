"""Machines: how a function is captured and timed on a GPU, and the same calls on a CPU, where tests run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

Run = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)
#: Functions are run this long between two looks at the clock.
_LOOK_SECONDS: Final = 0.01
_MOST_RUNS: Final = 200
#: Runs that are captured together take about this long.
_GRAPH_US: Final = 2_000.0
_FEWEST_PAIRS: Final = 8
#: Replays whose kernels are timed one by one.
_PROFILED: Final = 20
#: Of the intervals of medians.
CONFIDENCE: Final = 0.93


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run a block.

    Attributes:
        within: entered while it runs.
    """

    run: Run
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel of a graph, and its time."""

    name: str
    us: float


class Machine(Protocol):
    """A device that runs blocks.

    Attributes:
        device: torch's name.
        key: dispatch key of its kernels.
        graphs: whether it captures graphs.
    """

    device: str
    key: str
    graphs: bool

    def capture(self, run: Run) -> Run:
        """What replays the kernels of `run`, which has run before."""

    def us(self, run: Run, runs: int) -> float:
        """Microseconds of one of `runs` runs, one after another."""

    def kernels(self, run: Run) -> list[KernelTime]:
        """The kernels of a graph in order, medians over replays; none if they can't be told apart."""

    def wait(self) -> None:
        """Returns when nothing is enqueued."""

    def stream(self) -> int:
        """Handle of torch's current stream."""


class Cuda:
    """The first GPU."""

    device, key, graphs = "cuda", "CUDA", True

    def capture(self, run: Run) -> Run:
        """A CUDA graph, of a stream on which `run` has run before."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            made = run()

        def replay() -> Any:  # noqa: ANN401
            graph.replay()
            return made

        return replay

    def us(self, run: Run, runs: int) -> float:
        """By events on the current stream."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / runs

    def kernels(self, run: Run) -> list[KernelTime]:
        """As the driver's profiling interface reports them."""
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(_PROFILED):
                run()
            torch.cuda.synchronize()
        events = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        ran = [(event.name, event.time_range) for event in sorted(events, key=lambda event: event.time_range.start)]
        count, uneven = divmod(len(ran), _PROFILED)
        if uneven:
            return []
        return [
            KernelTime(ran[place][0], statistics.median(span.end - span.start for _, span in ran[place::count]))
            for place in range(count)
        ]

    def wait(self) -> None:
        """Waits for the device."""
        torch.cuda.synchronize()

    def stream(self) -> int:
        """torch's current stream."""
        return int(torch.cuda.current_stream().cuda_stream)


class Cpu:
    """A stand-in without graphs."""

    device, key, graphs = "cpu", "CPU", False

    def capture(self, run: Run) -> Run:
        """`run` itself."""
        return run

    def us(self, run: Run, runs: int) -> float:
        """By the host's clock."""
        begun = time.perf_counter()
        for _ in range(runs):
            run()
        return (time.perf_counter() - begun) * 1e6 / runs

    def kernels(self, run: Run) -> list[KernelTime]:
        """None: a CPU has no kernels."""
        return []

    def wait(self) -> None:
        """Nothing is ever enqueued."""

    def stream(self) -> int:
        """The default stream."""
        return 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long arms are timed.

    Attributes:
        turns: of all arms; the order alternates.
        settle_seconds: uncounted beginning of a turn, in which the clock of the arm before fades.
        counted_seconds: the rest of it.
        first_seconds: uncounted work before the first turn, in which the power limiter settles.
    """

    turns: int
    settle_seconds: float
    counted_seconds: float
    first_seconds: float = 0.0


def alternating(machine: Machine, arms: Mapping[Name, Arm], pace: Pace) -> dict[Name, list[float]]:
    """Microseconds of each arm in each turn: the mean of its counted looks."""
    taken: dict[Name, list[float]] = {name: [] for name in arms}
    first = next(iter(arms.values()))
    with first.within():
        _turn(machine, first.run, Pace(1, pace.first_seconds, 0.0))
    for turn in range(pace.turns):
        for name, arm in list(arms.items())[:: 1 if turn % 2 == 0 else -1]:
            with arm.within():
                taken[name].append(_turn(machine, arm.run, pace))
    return taken


def gain(torchs: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """How much time is saved, as a share of torch's: the median of the turns' pairs, and its interval.

    The interval lies between two of the pairs, the narrowest two that hold the median with `CONFIDENCE` whatever the
    distribution: of five, the least and the most; of nine, the second and the eighth.
    """
    saved = sorted(1 - mine / theirs for theirs, mine in zip(torchs, ours, strict=True))
    left_out = 0
    while _outside(len(saved), left_out + 1) <= 1 - CONFIDENCE:
        left_out += 1
    return statistics.median(saved), saved[left_out], saved[-1 - left_out]


def _outside(pairs: int, left_out: int) -> float:
    """How often the median lies outside all but some pairs on either side: as often as coins fall."""
    return 2 * sum(math.comb(pairs, heads) for heads in range(left_out + 1)) * 0.5**pairs


def host_us(machine: Machine, run: Run, batches: int = 10, runs: int = 200) -> float:
    """Host microseconds of one call that does not wait: the median over batches."""
    taken = []
    for _ in range(batches):
        machine.wait()
        begun = time.perf_counter()
        for _ in range(runs):
            run()
        taken.append((time.perf_counter() - begun) / runs * 1e6)
    machine.wait()
    return statistics.median(taken)


def paired(
    machine: Machine, first: Callable[[int], Run], second: Callable[[int], Run], most_apart: float, seconds: float
) -> tuple[float, float]:  # fmt: skip
    """Microseconds of one run of the second, and the first's time by the second's, of captured runs in turn.

    What lies further apart than expected is measured again, three times as long.

    Args:
        first, second: functions that run a number of times, by that number.
        most_apart: expected difference, as a share.
    """
    count = max(1, min(_MOST_RUNS, int(_GRAPH_US / machine.us(second(1), 3))))
    graphs = [machine.capture(of(count)) for of in (first, second)]
    for attempt in range(3):
        taken: list[list[float]] = [[], []]
        until = time.perf_counter() + seconds * 3**attempt
        while len(taken[0]) < _FEWEST_PAIRS or time.perf_counter() < until:
            for place in (0, 1) if len(taken[0]) % 2 == 0 else (1, 0):
                taken[place].append(machine.us(graphs[place], 1))
        ratio = statistics.median(one / other for one, other in zip(*taken, strict=True))
        if abs(ratio - 1) <= most_apart:
            break
    return statistics.median(taken[1]) / count, ratio


def _turn(machine: Machine, run: Run, pace: Pace) -> float:
    once = machine.us(run, 2)
    runs = max(1, min(_MOST_RUNS, int(_LOOK_SECONDS * 1e6 / once)))
    begun, counted = time.perf_counter(), list[float]()
    while time.perf_counter() < begun + pace.settle_seconds:
        machine.us(run, runs)
    while not counted or time.perf_counter() < begun + pace.settle_seconds + pace.counted_seconds:
        counted.append(machine.us(run, runs))
    return statistics.fmean(counted)
