"""Enumerates, filters and ranks the whole unpruned space of one problem, and explains single configs.

python -m benchmarks.enumerate_space 4096x4096x4096 --out benchmarks/results/F.md

Seconds are of the processor (one core), best of several runs: what else the machine does is not our matter.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.published import publish
from space.arch import H200
from space.config import Config
from space.enumerate import enumerate_space
from space.explain import explain
from space.family import Family, family_named
from space.problem import Problem
from space.rank import rank

RUNS, EXPLANATIONS = 3, 200
#: A ping-pong of three consumers needs two of them, with less to hold each; and a shorter ring.
PINGPONG: Final = {"schedule": "pingpong", "consumer_warpgroups": 3, "tile_n": 256}


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("shape")
    options.add_argument("--dtype", default="bf16")
    options.add_argument("--family", default="sm90_wgmma")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    family, problem = family_named(given.family), Problem.parse(given.shape, given.dtype)
    space = enumerate_space(family, problem, pruned=False)
    pruned = enumerate_space(family, problem)
    rows = [
        ("configs in the product of all knobs", f"{space.total:,}"),
        ("legal", f"{space.count:,}"),
        ("rows: legal, but for knobs that no rule reads", f"{len(space):,}"),
        ("legal and worth trying", f"{len(pruned):,}"),
        ("enumerate and filter", f"{best(lambda: enumerate_space(family, problem, pruned=False)):.2f} s"),
        ("estimate and rank", f"{best(lambda: rank(space, H200)):.2f} s"),
        ("the same, pruned", f"{best(lambda: rank(enumerate_space(family, problem), H200)):.3f} s"),
        ("peak memory of the process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"),
    ]
    for name, config in configs_of(family, pruned.family.config_at(pruned.columns, 0)):
        seconds = best(partial(explain_often, family, problem, config))
        rows.append((f"explain one config: {name}", f"{seconds / EXPLANATIONS * 1e3:.2f} ms"))
    lines = ["| what | |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows)]
    print("\n".join(lines))
    publish("enumerate_space", given.out, "\n".join(lines))


def configs_of(family: Family, legal: Config) -> Iterator[tuple[str, Config]]:
    """What is explained: a legal config, and illegal ones by how many knobs have to change."""
    yield "legal", legal
    yield "illegal, with the nearest legal change", _illegal(family, legal)
    if "schedule" in family.knob_named:
        yield "illegal, two knobs have to change", family.config(PINGPONG)
        yield "illegal, three knobs have to change", family.config(PINGPONG | {"stages": 16})


def _illegal(family: Family, legal: Config) -> Config:
    """The config with the largest tile or the most loads that there are: too much for registers or shared memory."""
    largest = {"tile_n": 256, "stages": 16, "columns": 4, "unroll": 16, "buffers": 2}
    taken = {name: value for name, value in largest.items() if name in family.knob_named}
    return family.config({**legal.knobs, **taken})


def explain_often(family: Family, problem: Problem, config: Config) -> None:
    """As many times as it takes to time it."""
    for _ in range(EXPLANATIONS):
        explain(family, problem, config)


def best(work: Callable[[], object]) -> float:
    """Fewest seconds of processor time of several runs."""
    taken = []
    for _ in range(RUNS):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


if __name__ == "__main__":
    main()
