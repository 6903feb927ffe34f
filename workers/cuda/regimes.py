"""Regimes: how rivals are timed in the finals, one function for each policy.

Each function gives every rival its times under one policy. What the rivals wrote meanwhile is compared, run by run,
with what was verified; outputs are poisoned in between. A rival with other output is out. After each burst and block
that is looked at, before the next rival runs: a wrong one may have written what others read, such as their semaphores.

How long a kernel's own power takes to set its clock, on H100s and H200s at their power limit: in blocks of up to 12 ms
rivals share a clock. Behind a hungrier kernel 250 to 300 ms pass before a time is within 1 % of a block's end. And the
limiter itself takes up to five seconds to settle once work begins: blocks of the first second are 4 % fast, those of
the fifth half a percent.

From then on it swings between two clocks, with a period of 0.9 s. So times are means over 0.85 s: of eight such blocks
of one kernel the means are 0.2 % apart (standard deviation, two kernels of two products on one H100), and those of
their last 0.16 s 1.5 %. Medians repeat as well, but pick one of the two clocks: for one pair of kernels their ratio was
1.035 where the means', which a program sees, was 1.025.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from workers.cuda.bench import Bench, Ready, Rest
from workers.cuda.clocks import DISTURBING, POWER_CAP
from workers.cuda.timing import StoppingRule, TimedGraph
from workers.cuda.verification import Verdict
from workers.measurement import NO_ENERGY, Clocks, Policy

#: Idle time before a burst.
BURST_REST_SECONDS: Final = 0.015
#: A graph that is shorter runs once more, uncounted, between the rest and the burst: its first launches wait for the
#: host.
SHORT_GRAPH_US: Final = 400.0
#: A turn whose SM clock is this far from the median of the turns is repeated. At the power limit readings scatter by
#: two or three steps of 15 MHz from one turn to the next; anything beyond that is drift.
CLOCK_BAND: Final = 0.05


@dataclass(frozen=True, slots=True)
class Pace:
    """How `sustained` is measured.

    Attributes:
        warm_up_seconds: work before the first block; with the turns before it, until the limiter has settled.
        settle_seconds: a block's beginning, at the clock that the kernel before left; it does not count.
        counted_seconds: the rest of it.
        passes: blocks of each rival, while it is near the fastest.
        near: from the second pass on, rivals take part that are behind the fastest by at most this share of its time.
    """

    warm_up_seconds: float
    settle_seconds: float
    counted_seconds: float
    passes: int
    near: float

    @property
    def block_seconds(self) -> float:
        return self.settle_seconds + self.counted_seconds


#: Where power decides. The blocks of 201 rivals, in 61 finals on H100s, have a standard deviation of 0.26 %, and the
#: first differs from the second by 0.15 % at most (median) in any place of its pass
#: (benchmarks/results/finals_h100.md). Who is 1 % behind the fastest may be picked, and the fastest of one pass may not
#: be the fastest of both.
LONG: Final = Pace(2.5, 0.25, 0.85, passes=2, near=0.0125)
#: Where it may limit the clock, but `chain` decides: blocks as long, for who loses here is not served. In blocks of
#: 0.25 s two of ours were 1.6 and 0.4 % behind the library's first choice on an H200, in a torch program 3.0 and 3.5 %.
SHORT: Final = Pace(1.0, 0.25, 0.85, passes=2, near=0.0125)
#: Where arithmetic takes too little of the time for it.
BRIEF: Final = Pace(0.06, 0.035, 0.025, passes=3, near=0.025)
#: Where it does all the same: memory at its full rate takes as much power. A long block of each needs no second one.
CAPPED: Final = replace(SHORT, passes=1)

#: Blocks that are long enough for a counter that moves ten times a second, and what is said where it is missing.
METERED_SECONDS: Final = 0.4
#: What is said of blocks in which the card protected itself. They count: a card that is too hot stays so.
SLOWED: Final = "the card slowed down to protect itself"


@dataclass(frozen=True, slots=True)
class Taken:
    """A rival's times under one policy.

    Attributes:
        samples_us: of one launch; under the chain policies, of one launch and of the small kernel before it.
        clocks: during or right after the last of them.
        remark: what readers should know.
        product_joules: energy of one launch; None where it was not measured.
    """

    samples_us: tuple[float, ...]
    clocks: Clocks
    remark: str = ""
    product_joules: float | None = None

    @property
    def median_us(self) -> float:
        return statistics.median(self.samples_us)


@dataclass(eq=False)
class Rival:
    """A candidate in the finals.

    Attributes:
        taken: its times, by policy.
        wrong: why it is out; empty while it competes.
    """

    ready: Ready
    verdict: Verdict
    taken: dict[Policy, Taken] = field(default_factory=dict)
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: one time per rival, and the clocks while the last of them ran."""

    times_us: tuple[float, ...]
    clocks: Clocks


def take_bursts(bench: Bench, rivals: Sequence[Rival], first: int, count: int, near: float) -> None:
    """`burst`: single replays after rest, in a new order each time.

    Args:
        first: bursts of every rival.
        count: bursts of those that are then behind the fastest by at most the share `near` of its time.
    """
    times: dict[Rival, list[float]] = {rival: [] for rival in rivals}
    left = list(rivals)
    for number in range(count):
        for rival in [left[place] for place in order_of(number, len(left))]:
            if not rival.wrong:
                times[rival].append(_burst_us(bench, rival, number, rivals.index(rival)))
                _out(bench, rivals, _burst_launches)
        if number + 1 == first:
            # A wrong one may be fast.
            middle = {rival: statistics.median(taken) for rival, taken in times.items() if not rival.wrong}
            left = [rival for rival in middle if middle[rival] <= min(middle.values()) * (1 + near)]
    clocks = bench.monitor.read()
    for rival in rivals:
        rival.taken[Policy.BURST] = Taken(tuple(times[rival]), clocks)


def take_sustained(bench: Bench, rivals: Sequence[Rival], pace: Pace, kept: Callable[[Rival], bool]) -> None:
    """`sustained`: each rival alone in blocks, in a new order in each pass; a sample is the mean over a block's end.

    Args:
        kept: rivals that take part in every pass.
    """

    def launches(rival: Rival) -> int:
        return _replays(rival, pace.block_seconds) * rival.ready.timed.launches

    blocks: dict[Rival, list[Block]] = {rival: [] for rival in rivals}
    _run_block(bench, rivals[0], 0.0, pace.warm_up_seconds, 0)
    _out(bench, rivals, lambda rival: _replays(rival, pace.warm_up_seconds) * rival.ready.timed.launches)
    left = list(rivals)
    for number in range(pace.passes):
        for place in order_of_pass(number, len(rivals)):
            if (rival := rivals[place]) in left:
                block = _run_block(bench, rival, pace.settle_seconds, pace.counted_seconds, place)
                blocks[rival].append(block)
                _out(bench, rivals, launches)
        # A wrong one may be fast.
        middle = {rival: statistics.median(block.us for block in blocks[rival]) for rival in left if not rival.wrong}
        most = min(middle.values(), default=0.0) * (1 + pace.near)
        left = [rival for rival in middle if middle[rival] <= most or kept(rival)]
    for rival, taken in blocks.items():
        powers = [block.watts for block in taken if block.watts is not None]
        median = statistics.median(block.us for block in taken)
        joules = statistics.mean(powers) * median / 1e6 if powers else None
        untold = joules is None and pace.block_seconds >= METERED_SECONDS
        slowed = any(DISTURBING & set(block.clocks.throttle_reasons) for block in taken)
        remark = "; ".join(said for said, so in ((NO_ENERGY, untold), (SLOWED, slowed)) if so)
        rival.taken[Policy.SUSTAINED] = Taken(tuple(block.us for block in taken), taken[-1].clocks, remark, joules)


def met_power_limit(rivals: Sequence[Rival]) -> bool:
    """Whether power limited the clock of one of them behind its last block under `sustained`."""
    return any(POWER_CAP in rival.taken[Policy.SUSTAINED].clocks.throttle_reasons for rival in rivals)


def take_energy(bench: Bench, rivals: Sequence[Rival]) -> None:
    """Joules under `sustained` where its blocks are too short to count them: from a longer block of each rival.

    Power and time are both that block's: in the short ones the power limit may leave the kernel another clock.
    """
    for place, rival in enumerate(rivals):
        block, taken = _run_block(bench, rival, 0.0, METERED_SECONDS, place), rival.taken[Policy.SUSTAINED]
        if block.watts is None:
            rival.taken[Policy.SUSTAINED] = replace(taken, remark="; ".join(filter(None, (NO_ENERGY, taken.remark))))
        else:
            rival.taken[Policy.SUSTAINED] = replace(taken, product_joules=block.watts * block.us / 1e6)
        _out(bench, rivals, lambda rival: _replays(rival, METERED_SECONDS) * rival.ready.timed.launches)


def take_chained(bench: Bench, rivals: Sequence[Rival], turns: int, policy: Policy) -> None:
    """`chain` and `chain_pdl`: turns of graphs in which each product runs behind a small kernel.

    Where power decides what is served, these times only have to show who loses here: no interval has to become narrow.
    """
    rule = _brief(turns) if bench.power_decides else StoppingRule.of(turns)
    graphs = list[TimedGraph]()
    try:
        for rival in rivals:
            graphs.append(bench.chained(rival.ready, early=policy is Policy.CHAIN_PDL))
        _take_turns(bench, rivals, graphs, rule, policy)
    finally:
        for graph in graphs:
            graph.destroy()


def take_rounds(bench: Bench, rivals: Sequence[Rival], turns: int) -> None:
    """`rounds`: the rivals take turns at one clock. It decides nothing, so no interval has to become narrow."""
    _take_turns(bench, rivals, [rival.ready.timed for rival in rivals], _brief(turns), Policy.ROUNDS)


def _brief(turns: int) -> StoppingRule:
    """A third of the turns, but six if there are: the range of six samples is a 95 % interval of their median."""
    return StoppingRule(max(turns // 3, min(turns, 6)), turns, width=math.inf)


def order_of(number: int, count: int) -> list[int]:
    """The order in which `count` rivals run in a turn.

    Random rather than rotated: a rival that always ran behind the same one would inherit the clock that it leaves.
    """
    return random.Random(number).sample(range(count), count)


def order_of_pass(number: int, count: int) -> list[int]:
    """The order of a pass of blocks: every other one reverses the one before.

    On a card that grows hotter from block to block, two blocks of each rival then say how they compare.
    """
    order = order_of(number // 2, count)
    return order[::-1] if number % 2 else order


def undisturbed(turns: list[Turn]) -> list[Turn]:
    """Turns whose SM clock is near the median of all, and in which the card did not protect itself."""
    middle = statistics.median(one.clocks.sm_mhz for one in turns)
    return [
        one
        for one in turns
        if abs(one.clocks.sm_mhz - middle) <= CLOCK_BAND * middle and not DISTURBING & set(one.clocks.throttle_reasons)
    ]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one rival.

    Attributes:
        us: mean time of one launch at the block's end.
        watts: mean power; None where the block was too short to count energy, or nothing counts it.
    """

    us: float
    watts: float | None
    clocks: Clocks


def _burst_us(bench: Bench, rival: Rival, number: int, slot: int) -> float:
    timed = rival.ready.timed
    bench.outputs.poison(number)
    rest = Rest(BURST_REST_SECONDS)
    rest.wait()
    timed.start(bench.stream, _burst_replays(rival))
    bench.outputs.compare(rival.verdict.digest, slot)
    taken = timed.samples_us()
    bench.busy_us += sum(taken) * timed.launches
    return taken[-1]


def _burst_replays(rival: Rival) -> int:
    """One that counts, behind one that does not where the graph is short."""
    return 1 + (rival.verdict.once_us * rival.ready.timed.launches < SHORT_GRAPH_US)


def _burst_launches(rival: Rival) -> int:
    return _burst_replays(rival) * rival.ready.timed.launches


def _run_block(bench: Bench, rival: Rival, settle_seconds: float, counted_seconds: float, slot: int) -> Block:
    seconds = settle_seconds + counted_seconds
    timed = rival.ready.timed
    bench.outputs.poison()
    with bench.monitor.metered() as meter:
        timed.start(bench.stream, _replays(rival, seconds))
        bench.outputs.compare(rival.verdict.digest, slot)
        taken = timed.samples_us()
    bench.busy_us += sum(taken) * timed.launches
    return Block(mean_behind(taken, settle_seconds / seconds), meter.watts, bench.monitor.read())


def mean_behind(samples_us: Sequence[float], share: float) -> float:
    """Mean of the samples behind the first `share` of their time; of the last one at least."""
    skipped_us, place = share * sum(samples_us), 0
    while place < len(samples_us) - 1 and skipped_us > 0:
        skipped_us -= samples_us[place]
        place += 1
    return statistics.fmean(samples_us[place:])


def _replays(rival: Rival, seconds: float) -> int:
    """Replays of a block that lasts about so long."""
    about_us = rival.taken[Policy.BURST].median_us if Policy.BURST in rival.taken else rival.verdict.once_us
    return max(math.ceil(seconds * 1e6 / (about_us * rival.ready.timed.launches)), 2)


def _take_turns(
    bench: Bench, rivals: Sequence[Rival], graphs: Sequence[TimedGraph], rule: StoppingRule, policy: Policy
) -> None:
    """Takes turns until the stopping rule is satisfied; disturbed turns don't count."""
    taken = list[Turn]()
    bench.busy_us += sum(graphs[0].heat_up(bench.stream)) * graphs[0].launches
    while len(taken) < rule.most_turns:
        taken.append(_turn(bench, rivals, graphs, len(taken)))
        kept = undisturbed(taken)
        if kept and rule.satisfied([[one.times_us[place] for one in kept] for place in range(len(rivals))]):
            break
    kept = undisturbed(taken)
    remark = ""
    if len(kept) < rule.least_turns:
        remark = f"{len(taken) - len(kept)} of {len(taken)} turns had an unsteady clock"
        kept = taken
    for place, rival in enumerate(rivals):
        rival.taken[policy] = Taken(tuple(one.times_us[place] for one in kept), kept[-1].clocks, remark)
    _out(bench, rivals, lambda rival: graphs[rivals.index(rival)].launches)


def _turn(bench: Bench, rivals: Sequence[Rival], graphs: Sequence[TimedGraph], number: int) -> Turn:
    """Runs every rival once, in a new order each time, and reads the clocks meanwhile."""
    order = order_of(number, len(rivals))
    for place in order:
        bench.outputs.poison(number)
        graphs[place].start(bench.stream, 1)
        bench.outputs.compare(rivals[place].verdict.digest, place)
    clocks = bench.monitor.read()
    times = [0.0] * len(order)
    for place in order:
        (times[place],) = graphs[place].samples_us()
        bench.busy_us += times[place] * graphs[place].launches
    return Turn(tuple(times), clocks)


def _out(bench: Bench, rivals: Sequence[Rival], launches: Callable[[Rival], int]) -> None:
    """Excludes rivals whose output differs from what was verified."""
    found = bench.outputs.differences()
    for place, difference in found.items():
        rivals[place].wrong = rivals[place].wrong or difference.text(launches(rivals[place]))
    if found:
        bench.restore()
