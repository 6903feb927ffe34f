"""What touching other memory does to the times of short products (`workers.cuda.elsewhere`).

python -m benchmarks.elsewhere benchmarks/stores/h200 --out benchmarks/results/elsewhere_h200.md

The stores hold tunes on a card like this one. Of each problem that `chain` decides, the fastest of ours and of the
library's replay in turn: first of all problems as they are, then with the touch before every replay, then without it
again. Nothing else changes from phase to phase: each prepares its operands anew.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from benchmarks.finals import finals_of
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from space.config import Config
from space.problem import Problem
from space.registry import is_own
from workers.build import Build
from workers.builder import Builder
from workers.cuda.bench import Bench
from workers.measurement import Policy

PHASES: Final = ("before", "touched", "after")
TURNS: Final = 25
HEADER: Final = (
    "| problem | kernel | split-K | before, µs | touched | after | touched − before, µs |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, and the fastest of ours and of the library's in its finals."""

    problem: Problem
    configs: tuple[Config, ...]


def pairs(folders: Iterable[Path], device: str, most: int) -> list[Pair]:
    """The shortest of what the stores have on a device, where `chain` decides."""
    stores = chain.from_iterable(map(stores_in, folders))
    finals = [one for store in stores for one in finals_of(store) if one.device == device]
    short = [(one, arms) for one in finals if one.decides is Policy.CHAIN and len(arms := one.fastest()) == 2]
    short.sort(key=lambda pair: pair[1][0].median_us)
    return [Pair(one.problem, tuple(arm.config for arm in arms)) for one, arms in short[:most]]


def times_us(bench: Bench, builder: Builder, pair: Pair, *, touched: bool) -> list[float]:
    """Medians of each config's replays."""
    bench.prepare(pair.problem, seed=1)
    digests = {config: build.digest for config, build in builder.builds(pair.problem, pair.configs)
               if isinstance(build, Build)}  # fmt: skip
    ready = [bench.ready(config, digests.get(config, "")) for config in pair.configs]
    taken: list[list[float]] = [[] for _ in ready]
    for turn in range(TURNS + 1):
        for place, one in enumerate(ready):
            if touched:
                bench.elsewhere.touch(bench.stream)
            one.timed.start(bench.stream, 1)
            samples = one.timed.samples_us()
            # The first one waits for the graph.
            taken[place] += samples if turn else ()
    for one in ready:
        one.discard()
    return [statistics.median(samples) for samples in taken]


def lines(pair: Pair, phases: Sequence[Sequence[float]]) -> list[str]:
    """One for each config."""
    found = []
    for place, config in enumerate(pair.configs):
        before, touched, after = (phase[place] for phase in phases)
        whose = config.family if is_own(config) else "cuBLASLt"
        split = config.knobs.get("split_k", 1)
        found.append(
            f"| {pair.problem.title} | {whose} | {split} | {before:.2f} | {touched:.2f} | {after:.2f} "
            f"| {touched - before:+.2f} |"
        )  # fmt: skip
    return found


def summary(asked: Sequence[Pair], phases: Sequence[Sequence[Sequence[float]]]) -> str:
    """Medians of what touching adds, by whose kernel it is."""
    added: dict[str, list[float]] = {}
    for place, pair in enumerate(asked):
        for arm, config in enumerate(pair.configs):
            several = not is_own(config) and int(config.knobs["split_k"]) > 1
            name = "ours" if is_own(config) else "cuBLASLt's with split-K" if several else "cuBLASLt's without"
            added.setdefault(name, []).append(phases[1][place][arm] - phases[0][place][arm])
    told = (f"{name} {statistics.median(each):+.2f} µs (of {len(each)}, {min(each):+.2f} to {max(each):+.2f})"
            for name, each in sorted(added.items()))  # fmt: skip
    return f"Medians of what touching other memory adds to a product: {'; '.join(told)}."


def main() -> None:
    """Prints two lines per problem, and the summary."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", type=Path, nargs="+", help="with files of `gemmtune backup`")
    options.add_argument("--most", type=int, default=48, help="problems, the shortest first")
    options.add_argument("--device", type=int, default=0)
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench, builder = Bench(given.device, Path(work)), Builder(Path(work))
        builder.arch = bench.facts.arch
        if not (asked := pairs(given.folders, bench.facts.name, given.most)):
            raise SystemExit(f"{given.folders} have no tune of {bench.facts.name} that `chain` decides")
        phases = [[times_us(bench, builder, pair, touched=phase == "touched") for pair in asked] for phase in PHASES]
        builder.close()
    of_pairs = (lines(pair, [phase[place] for phase in phases]) for place, pair in enumerate(asked))
    table, told = "\n".join([HEADER, *(line for each in of_pairs for line in each)]), summary(asked, phases)
    print(f"{table}\n\n{told}")
    publish("elsewhere", given.out, told, table, read=given.folders)


if __name__ == "__main__":
    main()
