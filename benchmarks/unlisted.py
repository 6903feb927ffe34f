"""How well the estimate of ours orders what cuBLASLt runs and its heuristic doesn't list.

python -m benchmarks.unlisted benchmarks/problems/more_rows.json --first 160 --out benchmarks/results/unlisted_h200.md

This process owns the GPU. For each problem what the library lists, and the first of the others that it accepts, are
screened as in a tune: verified over every element, and timed in a burst. A row compares the fastest of those that a
tune screens, and of all of the others, with the fastest that is listed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.deployed_table import mean
from benchmarks.named import named_problems
from benchmarks.published import add_out, publish
from benchmarks.sustained_order import rank_correlation
from space.config import Config
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.cli.record import part_of
from workers.cuda.bench import UNLISTED, Bench
from workers.cuda.driver import CudaError
from workers.measurement import Outcome

HEADER: Final = (
    f"| problem | listed | fastest listed, µs | others | wrong or failed | first {UNLISTED}: gain | all: gain | place "
    "| rank correlation |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)
#: The first of the others are as good as all if they are behind by at most this share of the time.
AS_GOOD: Final = 0.005


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        listed_us: of what the heuristic lists.
        others_us: of the others, in the order that is expected; infinite where one is wrong or fails.
    """

    problem: Problem
    listed_us: Sequence[float]
    others_us: Sequence[float]

    @property
    def right(self) -> int:
        return sum(map(math.isfinite, self.others_us))

    @property
    def compared(self) -> bool:
        """Whether there is something to compare."""
        return self.right > 1 and math.isfinite(min(self.listed_us, default=math.inf))

    def gain(self, most: int) -> float:
        """How many times as fast as the fastest listed one the fastest of the first others is."""
        return min(self.listed_us) / min(self.others_us[:most])

    @property
    def behind(self) -> float:
        """How far the fastest of those that a tune screens is behind the fastest of all, as a share of its time;
        infinite where each of them is wrong or fails."""
        return min(self.others_us[:UNLISTED]) / min(self.others_us) - 1

    @property
    def correlation(self) -> float:
        """Of the order that is expected with the times, in ranks."""
        us = [each for each in self.others_us if math.isfinite(each)]
        return rank_correlation(range(len(us)), us)

    @property
    def line(self) -> str:
        count, place = len(self.others_us), self.others_us.index(min(self.others_us)) + 1
        cells = (
            self.problem.title, len(self.listed_us), f"{min(self.listed_us):.2f}", count, count - self.right,
            f"{self.gain(UNLISTED):.3f}", f"{self.gain(count):.3f}", place, f"{self.correlation:.2f}",
        )  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


def measured(bench: Bench, problem: Gemm, first: int) -> Row:
    """Screens what the library lists, and the first of the others."""
    bench.prepare(problem, seed=1)
    listed, others = ([_screened_us(bench, each) for each in some] for some in (bench.baselines, bench.unlisted(first)))
    return Row(problem, listed, others)


def _screened_us(bench: Bench, config: Config) -> float:
    try:
        ready = bench.ready(config, "")
        try:
            one = bench.screen(ready, lambda: None, lambda: None)
        finally:
            ready.discard()
    except CudaError as error:
        if error.sticky:
            raise
        return math.inf
    return one.median_us if one.outcome is Outcome.CORRECT else math.inf


def summary(rows: Sequence[Row]) -> str:
    """Geometric means, and how often the first others are as good as all."""
    if not rows:
        return "Nothing was compared."
    first, whole = ([row.gain(most) for row in rows] for most in (UNLISTED, max(len(row.others_us) for row in rows)))
    behind = [row.behind for row in rows]
    asked, right = sum(len(row.others_us) for row in rows), sum(row.right for row in rows)
    return (
        f"{len(rows)} problems: the fastest of the first {UNLISTED} that are not listed is {mean(first):.3f} times as "
        f"fast as the fastest listed (geometric mean; {min(first):.3f} to {max(first):.3f}), that of all "
        f"{mean(whole):.3f} times. The first {UNLISTED} are within {AS_GOOD:.1%} of all for "
        f"{sum(each <= AS_GOOD for each in behind)}, and at most {max(behind):.1%} behind. {right:,} of {asked:,} were "
        f"right. Rank correlation of the order with the times, median: "
        f"{statistics.median(row.correlation for row in rows):.2f}."
    )


def main() -> None:
    """Prints a row per problem, then the summary."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path)
    options.add_argument("--first", type=int, default=160, help="of those that are not listed")
    options.add_argument("--part", default="1/1", metavar="I/N", help="every Nth problem, from the Ith on")
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options.add_argument("--seconds", type=float, default=600.0, help="begin no problem after this time")
    add_out(options)
    given = options.parse_args()
    ends, rows, skipped = time.monotonic() + given.seconds, list[Row](), list[str]()
    problems = part_of([*named_problems(given.problems)], given.part)
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given.device, Path(folder))
        for name, _, problem in problems:
            if time.monotonic() > ends:
                skipped.append(f"{name} (no time was left)")
                continue
            row = measured(bench, problem, given.first)
            if row.compared:
                rows.append(row)
                print(row.line, flush=True)
            else:
                skipped.append(f"{name} (the library lists no kernel for Hopper)")
    said = summary(rows) + (f" Not here: {', '.join(skipped)}." if skipped else "")
    print(f"\n{said}")
    publish("unlisted", given.out, "\n".join([HEADER, *(row.line for row in rows)]), said, read=[given.problems])


if __name__ == "__main__":
    as_command(main)
