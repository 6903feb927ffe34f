"""What kept finals say about how finals are held.

python -m benchmarks.finals benchmarks/stores/h100_suite --deployed benchmarks/results/parts/deployed_h100_*.json

Reads the backups of stores in a folder. Of each problem's best that is served it takes the finals:

* Rank correlation of the rivals' times under `sustained` with their times under other policies, and with joules.
* What the fastest would have been with fewer of our leaders, the first by bursts and the best of other structures; and
  where power decides, the first by bursts and by what a config loads, which is how finals choose them there.
* Where power decides: what the library's second by bursts is worth, and what our leaders gain under each policy.
* What the library's fastest that its heuristic doesn't list gains over the fastest that it lists, after rest.
* How far the blocks of one rival scatter, whether the place in the first pass matters, and how often two finals of the
  same rivals name the same winner, for that scatter alone.
* Power, and energy a flop: at the limit the time is what the energy makes it.
* With parts of `benchmarks.deployed` that were measured from these stores: how far the ratio of the fastest of ours to
  the library's fastest is from what a torch program measured afterwards, and whether its interval says so. Both were
  the fastest in the finals alone: what that flatters ours by is the mean.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.deployed_table import Part, Row, mean
from benchmarks.finals_kept import CLASSES, Finals, finals_of
from benchmarks.named import named_problems
from benchmarks.published import ROOT, add_out, publish
from benchmarks.restored import stores_in
from space.family import is_own
from space.rank import loads_of
from tuner.evidence.picks import DEPLOYED, paired, versus
from tuner.evidence.stats import ratio
from workers.cuda.finals import SECOND_NEAR
from workers.measurement import Measurement, Policy

#: The list that `benchmarks.deployed` measured, whose names its parts have.
LISTED: Final = ROOT / "benchmarks" / "problems" / "dev.json"
#: Leaders: the fastest by bursts, and after how many no other structure is added.
LEADERS: Final = ((1, 1), (2, 2), (3, 3), (1, 4), (2, 4), (3, 4), (3, 5), (3, 7))
#: Finals drawn of each problem.
DRAWN: Final = 40
#: Times in finals and in a torch program that are as far apart count as the same.
NEAR: Final = 0.05


#: Finals, what a torch program measured of their problem, and its regime that is the policy that decides.
Beside = tuple[Finals, Row, str]


def orders(found: Sequence[Finals]) -> Iterator[str]:
    """Rank correlations by class."""
    yield "| order under `sustained` against that by | finals | burst | chain | rounds | joules |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for group in CLASSES:
        of_group = [one for one in found if one.group == group and len(one.sustained) > 4]
        if not of_group:
            continue
        counted = [one for one in of_group if all(rival.product_joules for rival in one.sustained)]
        means = [
            statistics.fmean(one.correlation(policy) for one in of_group)
            for policy in (Policy.BURST, Policy.CHAIN, Policy.ROUNDS)
        ]
        joules = f"{statistics.fmean(one.correlation(None) for one in counted):.2f}" if counted else ""
        yield f"| {group} | {len(of_group)} | " + " | ".join(f"{mean:.2f}" for mean in means) + f" | {joules} |"


def leaders(found: Sequence[Finals]) -> Iterator[str]:
    """What fewer leaders cost under the policy that decides: `sustained` in the first class, `chain` in the others."""
    several = [one for one in found if len(one.own()) > 1]
    power, others = ([one for one in several if (one.group == CLASSES[0]) is limited] for limited in (True, False))
    yield (
        f"The fastest of fewer of our leaders, by bursts and by bursts and loads, in {len(power)} finals where power "
        f"decides, and by bursts in {len(others)} others:"
    )
    yield ""
    yield "| first | with other structures | bursts: slower, mean | at most | loads: | at most | others: | at most |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for few in LEADERS:
        by_bursts, by_loads = ([one.loss(*few, loads=loads) for one in power] for loads in (False, True))
        losses = [by_bursts, by_loads, [one.loss(*few) for one in others]]
        cells = [f"{statistics.fmean(each):.3%} | {max(each):.2%}" if each else " | " for each in losses]
        yield f"| {few[0]} | {few[1]} | {' | '.join(cells)} |"


def loads(found: Sequence[Finals]) -> Iterator[str]:
    """Where power decides: what an element that a block loads for a multiply-add adds to a config's time, beside the
    others of its problem (least squares), and how much of the scatter between `burst` and `sustained` that is."""
    logs, tiles = list[float](), list[float]()
    for one in (one for one in found if one.group == CLASSES[0]):
        ours = [each for each in one.own() if loads_of(each.config)]
        bursts = [one.by_policy[Policy.BURST][each.config.key].median_us for each in ours]
        logs += _about_mean(math.log(each.median_us / us) for each, us in zip(ours, bursts, strict=True))
        tiles += _about_mean(loads_of(each.config) for each in ours)
    if not any(tiles):
        yield "No two configs of these finals load differently where power decides."
        return
    slope = statistics.linear_regression(tiles, logs, proportional=True).slope
    left = [log - slope * tile for tile, log in zip(tiles, logs, strict=True)]
    before, behind = (math.sqrt(statistics.fmean(log * log for log in each)) for each in (logs, left))
    yield (
        f"`sustained` over `burst` rises by {slope:.2f} for an element of A and B that a block loads for a "
        f"multiply-add, in {len(logs)} configs: {before:.2%} apart within a problem (rms), {behind:.2%} with it."
    )


def _about_mean(values: Iterable[float]) -> list[float]:
    each = list(values)
    return [value - statistics.fmean(each) for value in each]


def seconds(found: Sequence[Finals]) -> Iterator[str]:
    """How often the library's second by bursts, if it isn't its first choice, is faster than its best by bursts where
    power decides, and by how much."""
    gains: dict[bool, list[float]] = {True: [], False: []}
    for one in (one for one in found if one.group == CLASSES[0]):
        bursts = one.by_policy[Policy.BURST]
        theirs = [each for each in one.sustained if not is_own(each.config)]
        by_bursts = sorted(theirs, key=lambda each: bursts[each.config.key].median_us)
        if len(theirs) > 1 and by_bursts[1] is not theirs[0]:
            best, second = by_bursts[:2]
            behind = bursts[second.config.key].median_us / bursts[best.config.key].median_us - 1
            gains[behind <= SECOND_NEAR].append(versus(best, second, one.device).value - 1)
    for near, where in ((True, f"within {SECOND_NEAR:.0%} of its best"), (False, "farther behind")):
        if gains[near]:
            faster = sum(gain > 0 for gain in gains[near])
            yield (
                f"The library's second by bursts, not its first choice, {where} in {len(gains[near])} finals where "
                f"power decides, was faster in {faster} (at most {max(0.0, *gains[near]):.2%})."
            )


def unlisted(found: Sequence[Finals]) -> Iterator[str]:
    """What the library's kernels beyond its heuristic's list gain by bursts, in which all that it lists take part."""
    lines = []
    for group in CLASSES:
        of_group = [one for one in found if one.group == group]
        if gains := [gain for one in of_group if (gain := one.gain_of_unlisted()) is not None]:
            faster = sum(gain > 1 for gain in gains)
            counts = f"{len(of_group)} | {len(gains)} | {faster}"
            lines.append(f"| {group} | {counts} | {mean(gains):.3f} | {max(gains):.3f} |")
    if lines:
        yield "| not in the heuristic's list | finals | took part in | faster in | gain, mean | at most |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    yield from lines


def policies(found: Sequence[Finals]) -> Iterator[str]:
    """What those of our leaders gain that are the fastest under one policy: long 16-bit products, but odd ones."""
    sixteen = [one for one in found if one.group == CLASSES[0] and one.problem.dtype in ("bf16", "fp16")]
    even = [one for one in sixteen if not any(extent % 8 for extent in one.problem.extents)]
    gains = {policy: [gain for one in even if (gain := one.gains(policy))] for policy in DEPLOYED}
    if not any(gains.values()):
        return
    yield f"| the fastest of our leaders under | products | gain: {' | '.join(DEPLOYED)} |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for policy, of_finals in gains.items():
        columns = (mean(column) for column in zip(*of_finals, strict=True))
        yield f"| {policy} | {len(of_finals)} | {' | '.join(f'{column:.3f}' for column in columns)} |"


def blocks(found: Sequence[Finals]) -> Iterator[str]:
    """Scatter of blocks by class, and by place in the first pass where power decides."""
    yield "| blocks of one rival | rivals | standard deviation |"
    yield "| --- | ---: | ---: |"
    for group in CLASSES:
        of_group = [one for one in found if one.group == group]
        if repeated := sum(len(one.samples_us) > 1 for each in of_group for one in each.sustained):
            yield f"| {group} | {repeated} | {scatter(of_group):.2%} |"
    by_place: dict[int, list[float]] = {}
    for one in (one for one in found if one.group == CLASSES[0]):
        for place, over_second in one.places():
            by_place.setdefault(place, []).append(over_second)
    if not by_place:
        return
    medians = ", ".join(f"{statistics.median(ratios) - 1:+.2%}" for _, ratios in sorted(by_place.items()))
    yield f"\nFirst block against second, by place in the first pass, where power decides (medians): {medians}."


def again(found: Sequence[Finals]) -> Iterator[str]:
    """How often two finals of the same rivals would name one winner, if nothing but blocks differed."""
    if not (of_class := [one for one in found if one.group == CLASSES[0]]):
        yield "In none of these finals power decides."
        return
    today = scatter(of_class)
    yield f"Winners of {DRAWN} finals of the same rivals, drawn with the scatter of blocks where power decides:"
    yield ""
    yield "| blocks, times today's | the same as in the finals before | others: slower or faster, mean | at most |"
    yield "| ---: | ---: | ---: | ---: |"
    for times in (1, 4, 16, 64):
        apart = list[float]()
        for one in of_class:
            generator = random.Random(one.problem.key)
            won = [one.winner_drawn(generator, today / math.sqrt(times)) for _ in range(DRAWN)]
            apart += [abs(after.median_us / before.median_us - 1) for before, after in pairwise(won) if after != before]
        pairs = len(of_class) * (DRAWN - 1)
        others = f"{statistics.fmean(apart):.2%} | {max(apart):.2%}" if apart else " | "
        yield f"| {times} | {1 - len(apart) / pairs:.0%} | {others} |"


def scatter(found: Sequence[Finals]) -> float:
    """Relative standard deviation of the blocks of one rival; 0 where none has two."""
    taken = [one.samples_us for each in found for one in each.sustained if len(one.samples_us) > 1]
    return math.sqrt(statistics.fmean([statistics.variance(map(math.log, each)) for each in taken] or [0]))


def energy(found: Sequence[Finals]) -> Iterator[str]:
    """Watts, and picojoules a flop of the fastest of ours and of the library's, of long 16-bit products."""
    rivals, ours, theirs = list[Measurement](), list[float](), list[float]()
    for one in found:
        if one.group == CLASSES[0] and one.problem.dtype in ("bf16", "fp16"):
            counted = [each for each in one.sustained if each.product_joules]
            rivals += counted
            for made, own in ((ours, True), (theirs, False)):
                of_arm = [each for each in counted if is_own(each.config) is own]
                if of_arm:
                    fastest = min(of_arm, key=lambda each: each.median_us)
                    made.append((fastest.product_joules or math.nan) / one.problem.flops * 1e12)
    if not rivals:
        return
    watts = sorted((one.product_joules or math.nan) / one.median_us * 1e6 for one in rivals)
    low, high = watts[len(watts) // 20], watts[-len(watts) // 20]
    said = (
        f"Long 16-bit products, {len(rivals)} rivals: {statistics.median(watts):.0f} W (median), nine of ten between "
        f"{low:.0f} and {high:.0f}."
    )
    if ours and theirs:
        said += (
            f" The fastest of ours takes {statistics.median(ours):.3f} pJ a flop (median of {len(ours)}), the "
            f"library's fastest {statistics.median(theirs):.3f}."
        )
    yield said


def beside_torch(found: Iterable[Finals], rows: Iterable[Row]) -> list[Beside]:
    """The finals of the problems that a torch program measured."""
    by_name = {row.name: row for row in rows}
    by_key = {problem.key: by_name[name] for name, _, problem in named_problems(LISTED) if name in by_name}
    return [
        (one, by_key[one.problem.key], "alone" if one.decides is Policy.SUSTAINED else "chain")
        for one in found if one.problem.key in by_key
    ]  # fmt: skip


def against_torch(pairs: Sequence[Beside]) -> Iterator[str]:
    """Ratios of the finals against those of torch programs, by class."""
    yield "| ours to the library's, finals against torch | finals | in the interval | in the bootstrap's alone " + (
        "| apart, median | at most | finals flatter, mean |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for group in CLASSES:
        held, alone, apart = 0, 0, list[float]()
        for one, row, regime in (pair for pair in pairs if pair[0].group == group):
            if len(both := one.fastest()) < 2 or not {"own", "library"} <= row.us.keys():
                continue
            ours, theirs = both
            in_torch = row.us["library"][regime] / row.us["own"][regime]
            said, bootstrap = versus(theirs, ours, one.device), ratio(*paired(theirs, ours))
            held += said.low <= in_torch <= said.high
            alone += bootstrap.low <= in_torch <= bootstrap.high
            apart.append(said.value / in_torch)
        if apart:
            off = [abs(each - 1) for each in apart]
            yield (
                f"| {group} | {len(apart)} | {held} | {alone} | {statistics.median(off):.1%} | {max(off):.1%} "
                f"| {mean(apart) - 1:+.2%} |"
            )


def first_choices(pairs: Sequence[Beside]) -> Iterator[str]:
    """Problems for which torch is not as fast as the library's first choice; both beside the library's fastest."""
    apart = {
        one.problem.title: gain * row.us["library"][regime] / row.us["torch"][regime]
        for one, row, regime in pairs
        if "library" in row.us and not math.isnan(gain := one.gain_over_first())
    }
    near = [each for each in apart.values() if abs(each - 1) <= NEAR]
    yield (
        f"torch takes the time of the library's first choice, within {NEAR:.0%}, for {len(near)} of {len(apart)} "
        f"problems. The others, and how many times as fast torch is as the first choice:"
    )
    yield ""
    yield "| problem | torch / first choice |"
    yield "| --- | ---: |"
    for name, times in sorted(apart.items(), key=lambda pair: pair[1]):
        if abs(times - 1) > NEAR:
            yield f"| {name} | {times:.2f} |"


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="with files of `gemmtune backup`")
    options.add_argument("--deployed", type=Path, nargs="+", default=[], metavar="JSON", help="parts of deployed")
    add_out(options)
    given = options.parse_args()
    # Read first: the rest takes minutes.
    rows = [row for path in given.deployed for row in Part.read(path).rows]
    found = [one for store in stores_in(given.folder) for one in finals_of(store)]
    parts = (orders, leaders, loads, seconds, unlisted, policies, blocks, again, energy)
    paragraphs = [text for part in parts if (text := "\n".join(part(found)))]
    if given.deployed:
        pairs = beside_torch(found, rows)
        paragraphs += ["\n".join(part(pairs)) for part in (against_torch, first_choices)]
    print(*paragraphs, sep="\n\n")
    read = [given.folder, *([LISTED, *given.deployed] if given.deployed else [])]
    publish("finals", given.out, *paragraphs, read=read)


if __name__ == "__main__":
    as_command(main)
