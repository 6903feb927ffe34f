"""How well screening predicts the order under `sustained`: 60 candidates of 8 large products, each measured in full.

python -m benchmarks.sustained_order --out benchmarks/results/sustained_order_h200.md

Candidates are screened as a tune screens them. The fastest 40, the best of further structures and the finalists of a
tune are then timed under `sustained`, one block each, and in rounds at one clock. `lost` is how much slower than the
best of all of these the best of the finalists is, and of as many picked from the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.command import as_command
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.config import Config
from space.enumerate import enumerate_all
from space.families.common import starts_early
from space.family import families_for
from space.kinds.gemm import Gemm
from space.structures import best_of_structures
from tuner.prediction.files import model_for
from tuner.settings import settings
from tuner.studying.candidates import ranked
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.records import Budget, Trial
from tuner.studying.screening import Search
from workers.build import Build
from workers.builder import Builder
from workers.cuda.bench import Bench
from workers.cuda.outputs import SLOTS
from workers.cuda.regimes import LONG, Rival, take_rounds, take_sustained
from workers.measurement import Outcome, Policy

PROBLEMS: Final = (
    "bf16:4096x4096x4096", "bf16:8192x6144x4096", "bf16:4096x7168x8192", "bf16:2048x28672x4096", "bf16:8192x8192x8192",
    "bf16:2048x4096x14336", "fp8_e4m3:4096x16384x6656", "fp16:8192x28672x4096",
)  # fmt: skip
SCREENED: Final = 160
FASTEST, IN_FULL = 40, 60
TURNS: Final = 10

#: A screened candidate, and the digest of its build.
Screened = tuple[Trial, str]

HEADER: Final = (
    "| problem | in full | rank correlation of sustained times with screening | with rounds | finalists "
    "| lost by screening | lost by rounds |\n| --- | --- | --- | --- | --- | --- | --- |"
)


def screened(bench: Bench, builder: Builder, problem: Gemm, guidance: Guidance) -> list[Screened]:
    """Correct candidates of our own families, fastest first, each with the digest of its build."""
    profile = bench.facts.profile
    spaces = enumerate_all(families_for(bench.facts.arch, problem), problem, profile)
    candidates = [config for _, config in ranked(spaces, profile)]
    order = order_for(guidance, problem, candidates, bench.facts.name)
    found = []
    for config, build in builder.builds(problem, order.take(SCREENED)):
        if isinstance(build, Build):
            ready = bench.ready(config, build.digest)
            measured = bench.screen(ready, lambda: None, lambda: None)
            ready.discard()
            if measured.outcome is Outcome.CORRECT:
                found.append((Trial.of(measured), build.digest))
    return sorted(found, key=lambda each: each[0].median_us)


def in_full(found: Sequence[Screened], finalists: Collection[Config]) -> list[Screened]:
    """What is timed in full, as many as can be told apart: the finalists, and the fastest and the best of structures.

    Args:
        found: fastest first.
    """
    first = [each for each in found if each[0].config in finalists]
    others = best_of_structures(found, lambda each: each[0].config, FASTEST, IN_FULL)
    kept = [*first, *(each for each in others if each not in first)][:SLOTS]
    return sorted(kept, key=found.index)


def row(bench: Bench, builder: Builder, problem: Gemm) -> str:
    """One problem's line."""
    bench.prepare(problem, seed=1)
    guidance = Guidance(model_for(bench.facts.name, settings().model_dir).model)
    found = screened(bench, builder, problem, guidance)
    trials = [trial for trial, _ in found]
    search = Search(problem, bench.facts.name, [one.config for one in trials], Budget(), trials, guidance)
    finalists = {config for config in search.finalists() if not starts_early(config)}
    chosen = in_full(found, finalists)
    rivals = []
    for trial, digest in chosen:
        ready = bench.ready(trial.config, digest)
        verdict = bench.verify(ready)
        if verdict.reason:
            raise SystemExit(f"{trial.config.key} is wrong when verified again: {verdict.reason}")
        rivals.append(Rival(ready, verdict))
    take_sustained(bench, rivals, replace(LONG, passes=1), lambda rival: True)
    take_rounds(bench, rivals, TURNS)
    sustained, rounds = (
        [rival.taken[policy].median_us for rival in rivals] for policy in (Policy.SUSTAINED, Policy.ROUNDS)
    )
    for rival in rivals:
        rival.ready.discard()
    times = {trial.config: time for (trial, _), time in zip(chosen, sustained, strict=True)}
    by_rounds = sorted(range(len(chosen)), key=rounds.__getitem__)[: len(finalists)]
    best = min(sustained)
    cells = (
        f"{problem.dtype} {problem.shape}", str(len(chosen)),
        f"{rank_correlation(sustained, [trial.median_us for trial, _ in chosen]):.2f}",
        f"{rank_correlation(sustained, rounds):.2f}", str(len(finalists)),
        f"{min(times[config] for config in finalists) / best - 1:.1%}",
        f"{min(sustained[place] for place in by_rounds) / best - 1:.1%}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def rows(problems: Sequence[str], device: int) -> Iterator[str]:
    """A line per problem, measured in this process."""
    with tempfile.TemporaryDirectory() as folder:
        bench, builder = Bench(device, Path(folder)), Builder(Path(folder))
        builder.arch = bench.facts.arch
        for text in problems:
            yield row(bench, builder, problem_of(text))
        builder.close()


def shared(problems: Sequence[str], devices: Sequence[int]) -> list[str]:
    """A line per problem, in their order; each device has a process, which measures its share of them."""
    command = (sys.executable, "-m", "benchmarks.sustained_order")
    shares = [problems[place :: len(devices)] for place in range(len(devices))]
    processes = [
        subprocess.Popen([*command, *share, "--devices", str(device)], stdout=subprocess.PIPE, text=True)
        for share, device in zip(shares, devices, strict=True)
        if share
    ]
    printed = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a process failed: see what it wrote above")
    of_share = [iter(text.partition(f"{HEADER}\n")[2].splitlines()) for text in printed]
    return [next(of_share[place % len(devices)]) for place in range(len(problems))]


def summary(lines: Sequence[str]) -> str:
    """Medians of the rank correlations."""
    columns = [[float(line.split(" | ")[place]) for line in lines] for place in (2, 3)]
    return (
        f"Median rank correlation: {statistics.median(columns[0]):.2f} with screening, "
        f"{statistics.median(columns[1]):.2f} with rounds."
    )


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=PROBLEMS, metavar="DTYPE:MxNxK")
    options.add_argument("--devices", type=int, nargs="+", default=[0], help="ordinals of the GPUs")
    add_out(options)
    given = options.parse_args()
    for text in given.problems:
        problem_of(text)  # a process of several that is refused would leave the others at work
    lines = []
    print(HEADER, flush=True)
    several = len(given.devices) > 1
    for line in shared(given.problems, given.devices) if several else rows(given.problems, given.devices[0]):
        lines.append(line)
        print(line, flush=True)
    print(f"\n{summary(lines)}")
    publish("sustained_order", given.out, "\n".join([HEADER, *lines]), summary(lines))


if __name__ == "__main__":
    as_command(main)
