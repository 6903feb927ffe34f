"""Machines: how a function is captured and timed on a GPU, and the same calls on a CPU, where tests run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

Run = Callable[[], Any]
#: Functions are run this long between two looks at the clock.
_LOOK_SECONDS: Final = 0.01
_MOST_RUNS: Final = 200


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run a block.

    Attributes:
        within: entered while it runs.
    """

    run: Run
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


class Machine(Protocol):
    """A device that runs blocks.

    Attributes:
        device: torch's name.
        key: dispatch key of its kernels.
    """

    device: str
    key: str

    def capture(self, run: Run) -> Run:
        """What replays the kernels of `run`, which has run before."""

    def us(self, run: Run, runs: int) -> float:
        """Microseconds of one of `runs` runs, one after another."""


class Cuda:
    """The first GPU."""

    device, key = "cuda", "CUDA"

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


class Cpu:
    """A stand-in without graphs."""

    device, key = "cpu", "CPU"

    def capture(self, run: Run) -> Run:
        """`run` itself."""
        return run

    def us(self, run: Run, runs: int) -> float:
        """By the host's clock."""
        begun = time.perf_counter()
        for _ in range(runs):
            run()
        return (time.perf_counter() - begun) * 1e6 / runs


@dataclass(frozen=True, slots=True)
class Pace:
    """How long arms are timed.

    Attributes:
        turns: of all arms; the order alternates.
        settle_seconds: uncounted beginning of a turn, in which the clock of the arm before fades.
        counted_seconds: the rest of it.
    """

    turns: int
    settle_seconds: float
    counted_seconds: float


def alternating(machine: Machine, arms: Mapping[str, Arm], pace: Pace) -> dict[str, list[float]]:
    """Microseconds of each arm in each turn: the median of its counted looks."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(pace.turns):
        for name, arm in list(arms.items())[:: 1 if turn % 2 == 0 else -1]:
            with arm.within():
                taken[name].append(_turn(machine, arm.run, pace))
    return taken


def gain(torchs: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """How much time is saved, as a share of torch's: median, least and most of the turns' pairs."""
    saved = [1 - mine / theirs for theirs, mine in zip(torchs, ours, strict=True)]
    return statistics.median(saved), min(saved), max(saved)


def host_us(run: Run, batches: int = 30, runs: int = 200) -> float:
    """Host microseconds of one call that does not wait: the median over batches."""
    taken = []
    for _ in range(batches):
        with _idle():
            begun = time.perf_counter()
            for _ in range(runs):
                run()
            taken.append((time.perf_counter() - begun) / runs * 1e6)
    return statistics.median(taken)


def _turn(machine: Machine, run: Run, pace: Pace) -> float:
    once = machine.us(run, 2)
    runs = max(1, min(_MOST_RUNS, int(_LOOK_SECONDS * 1e6 / once)))
    begun, counted = time.perf_counter(), list[float]()
    while time.perf_counter() < begun + pace.settle_seconds:
        machine.us(run, runs)
    while not counted or time.perf_counter() < begun + pace.settle_seconds + pace.counted_seconds:
        counted.append(machine.us(run, runs))
    return statistics.median(counted)


@contextmanager
def _idle() -> Iterator[None]:
    """Begins and ends with nothing enqueued."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else _nothing
    wait()
    yield
    wait()


def _nothing() -> None: ...
