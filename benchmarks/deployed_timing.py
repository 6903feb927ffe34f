"""How `benchmarks.deployed` times its arms: as torch programs run them, each in its own CUDA graphs.

Four regimes, as in `workers.cuda.regimes`, stated anew with torch alone: a fault of ours in one does not hide in the
other. Operands rotate through gigabytes within each graph.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from workers.cuda.clocks import Meter

#: Operands are rotated through this many bytes, as far as a graph's launches read as much: a program reads all weights
#: of a model before it reads one again, and what a kernel keeps in L2 on purpose outlives rotations of 240 MB.
COLD_BYTES: Final = 4 << 30
#: One graph lasts about this long.
GRAPH_US: Final = 1_500.0
#: Seconds of turns, and the fewest of them: by 7 turns of 6 ms, two arms that were one kernel came out 2 % apart.
TURNS_SECONDS, FEWEST_TURNS = 0.4, 24
#: `alone`: seconds of work before the first block, in which the power limiter settles; of a block; and of its end,
#: which counts. A block outlasts the clock that the arm before left, which fades within 0.3 s, and then one swing of
#: the limiter, of 0.9 s (workers/cuda/regimes.py).
SETTLE_SECONDS, BLOCK_SECONDS, COUNTED_SECONDS = 4.0, 1.1, 0.85
#: The same of products that can't reach the power limit: just long enough to count energy.
BRIEF_BLOCK_SECONDS, BRIEF_COUNTED_SECONDS = 0.35, 0.25
BURSTS, REST_SECONDS = 12, 0.015
#: Where an arm's graph is shorter, every arm's runs once more, uncounted, before its burst: its first launches wait for
#: the host. Arms on both sides of this bound would otherwise begin differently.
SHORT_GRAPH_US: Final = 400.0

OperandSet = Any
Product = Callable[[OperandSet], None]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to compute a product.

    Attributes:
        product: enqueues it on a set's operands.
        prepare: called before its launches are captured.
    """

    product: Product
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of one product in each regime, and joules of one product alone; None without an energy counter."""

    us: Mapping[str, float]
    joules: float | None


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured graph of `count` products."""

    graph: torch.cuda.CUDAGraph
    count: int

    @classmethod
    def of(cls, arm: Arm, sets: Sequence[OperandSet], count: int) -> Graph:
        """Captures `count` products, which take the sets in turn; the first ones run once before."""
        arm.prepare()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for one in sets[:3]:
                arm.product(one)
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made, stream=stream):
            for place in range(count):
                arm.product(sets[place % len(sets)])
        return cls(made, count)

    def us(self) -> float:
        """Microseconds of one product, in one replay."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / self.count


class Energy:
    """The board's energy counter, watched from a thread of its own: a look takes a millisecond of the host."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._joules()
        except Exception:
            # No NVML, or no counter: then there are times only, and the table says so.
            self._nvml = None

    def metered(self) -> Meter:
        """Counts energy while the body of a `with` runs."""
        return Meter(self._joules)

    def _joules(self) -> float | None:
        """Since the driver was loaded."""
        return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3 if self._nvml else None


def times(
    arms: Mapping[str, Arm], sets: Sequence[OperandSet], expected_us: float, energy: Energy, *, settles: bool
) -> dict[str, Times]:
    """Times every arm in every regime.

    Args:
        settles: whether the products can reach the power limit.
    """
    count = launches_of(expected_us)
    plain = {name: Graph.of(arm, sets, count) for name, arm in arms.items()}
    small = torch.zeros(4096, device="cuda")
    chains = {name: Graph.of(behind(small, arm), sets, count) for name, arm in arms.items()}
    burst, chain, turns = bursts(plain), in_turn(chains, TURNS_SECONDS), in_turn(plain, TURNS_SECONDS)
    blocks = alone(plain, turns, energy, settles=settles)
    made = {}
    for name in arms:
        own_us = statistics.mean(block.us for block in blocks[name])
        watts = [block.watts for block in blocks[name] if block.watts is not None]
        us = {"turns": turns[name], "alone": own_us, "burst": burst[name], "chain": chain[name]}
        made[name] = Times(us, statistics.mean(watts) * own_us / 1e6 if watts else None)
    return made


def launches_of(expected_us: float) -> int:
    """Products of one graph."""
    return max(2, min(200, int(GRAPH_US / expected_us)))


def bursts(graphs: Mapping[str, Graph]) -> dict[str, float]:
    """Single replays after rest; the order alternates."""
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(BURSTS):
        short = any(us[-1] * graphs[name].count < SHORT_GRAPH_US for name, us in taken.items() if us)
        for name, graph in _alternating(graphs, number):
            time.sleep(REST_SECONDS)
            if short:
                graph.us()
            taken[name].append(graph.us())
    return {name: statistics.median(us) for name, us in taken.items()}


def in_turn(graphs: Mapping[str, Graph], seconds: float) -> dict[str, float]:
    """Replays in turn, all at one clock."""
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    ends, number = time.monotonic() + seconds, 0
    while time.monotonic() < ends or number < FEWEST_TURNS:
        for name, graph in _alternating(graphs, number):
            taken[name].append(graph.us())
        number += 1
    return {name: statistics.median(us) for name, us in taken.items()}


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one arm: mean microseconds of a product at its end, and watts where they were counted."""

    us: float
    watts: float | None


def alone(
    graphs: Mapping[str, Graph], about_us: Mapping[str, float], energy: Energy, *, settles: bool
) -> dict[str, list[Block]]:
    """Each in two blocks of its own, in two orders, behind work in which the power limiter settles.

    Args:
        about_us: of one product.
        settles: whether products can reach the power limit.
    """
    seconds, counted = BRIEF_BLOCK_SECONDS, BRIEF_COUNTED_SECONDS
    if settles:
        seconds, counted = BLOCK_SECONDS, COUNTED_SECONDS
        first = next(iter(graphs))
        _work(graphs[first], about_us[first], SETTLE_SECONDS)
    made: dict[str, list[Block]] = {name: [] for name in graphs}
    for name in [*graphs, *list(graphs)[::-1]]:
        _work(graphs[name], about_us[name], seconds - counted)
        with energy.metered() as meter:
            us = _work(graphs[name], about_us[name], counted)
        made[name].append(Block(us, meter.watts))
    return made


def _work(graph: Graph, about_us: float, seconds: float) -> float:
    """Replays without a gap, for about so long; returns microseconds of one product."""
    replays = max(2, math.ceil(seconds * 1e6 / (about_us * graph.count)))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(replays):
        graph.graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / (replays * graph.count)


def behind(small: torch.Tensor, arm: Arm) -> Arm:
    """The product behind one small elementwise kernel, whose time counts too."""

    def link(one: OperandSet) -> None:
        small.add_(1.0)
        arm.product(one)

    return Arm(link, arm.prepare)


def _alternating(graphs: Mapping[str, Graph], number: int) -> list[tuple[str, Graph]]:
    listed = list(graphs.items())
    return listed if number % 2 == 0 else listed[::-1]
