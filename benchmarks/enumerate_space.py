"""Enumerates, filters and ranks the whole unpruned space of one problem, and explains single configs.

python -m benchmarks.enumerate_space 4096x4096x4096 --out benchmarks/results/F.md

Times are processor seconds on one core, the best of several runs, so other load on the machine matters little.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Final

from benchmarks.command import WrongInput, as_command
from benchmarks.published import add_out, publish
from space.config import Config
from space.devices import DEFAULT_DEVICE, profile_named
from space.enumerate import enumerate_space
from space.explain import explain, is_legal
from space.family import family_named
from space.kinds.gemm import Gemm
from space.plug import Family
from space.rank import rank

RUNS, EXPLANATIONS = 3, 200
#: Random illegal configs, and how often each is explained.
RANDOM, TURNS = 2000, 9
#: Illegal: ping-pong with three consumers. The fix is two consumers, smaller tiles and a shorter ring.
PINGPONG: Final = {"schedule": "pingpong", "consumer_warpgroups": 3, "tile_n": 256}


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("shape")
    options.add_argument("--dtype", default="bf16")
    options.add_argument("--family", default="sm90_wgmma")
    add_out(options)
    given = options.parse_args()
    device = profile_named(DEFAULT_DEVICE)
    family, problem = family_named(given.family), Gemm.parse(given.shape, given.dtype)
    space = enumerate_space(family, problem, device, pruned=False)
    pruned = enumerate_space(family, problem)
    if not len(pruned):
        raise WrongInput(f"no config of {family.name} is worth trying for {problem.title}: {pruned.removed_most}")
    rows = [
        ("configs in the product of all knobs", f"{space.total:,}"),
        ("legal", f"{space.count:,}"),
        ("rows: legal, but for knobs that no rule reads", f"{len(space):,}"),
        ("legal and worth trying", f"{len(pruned):,}"),
        ("enumerate and filter", f"{best(lambda: enumerate_space(family, problem, device, pruned=False)):.2f} s"),
        ("estimate and rank", f"{best(lambda: rank(space, device)):.2f} s"),
        ("the same, pruned", f"{best(lambda: rank(enumerate_space(family, problem, device), device)):.3f} s"),
        ("peak memory of the process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"),
    ]
    rows += explanations(family, problem, family.config_at(pruned.columns, 0))
    lines = ["| what | |", "| --- | --- |", *(f"| {what} | {value} |" for what, value in rows)]
    print("\n".join(lines))
    publish("enumerate_space", given.out, "\n".join(lines))


def explanations(family: Family, problem: Gemm, legal: Config) -> Iterator[tuple[str, str]]:
    """Times `explain` for several kinds of configs, for a new problem, and for random configs."""
    for name, config in configs_of(family, legal):
        seconds = best(partial(explain_often, family, [problem] * EXPLANATIONS, config))
        yield f"explain one config: {name}", f"{seconds / EXPLANATIONS * 1e3:.2f} ms"
    others = (replace(problem, k=problem.k + 64 * further) for further in count(1))
    seconds = best(lambda: explain_often(family, islice(others, EXPLANATIONS), config))
    yield "the last one, for a new problem", f"{seconds / EXPLANATIONS * 1e3:.2f} ms"
    configs = random_illegal(family, problem, legal)
    # In turn: the best of consecutive runs would still be that of a slow moment.
    turns = [[seconds_of(partial(explain, family, problem, config)) for config in configs] for _ in range(TURNS)]
    taken = sorted(map(min, zip(*turns, strict=True)))
    for name, seconds in (("half", taken[RANDOM // 2]), ("99 of 100", taken[RANDOM * 99 // 100]), ("all", taken[-1])):
        yield f"explain one of {RANDOM:,} random illegal configs: {name} within", f"{seconds * 1e3:.2f} ms"


def configs_of(family: Family, legal: Config) -> Iterator[tuple[str, Config]]:
    """A legal config, and illegal ones by the number of knobs that must change."""
    yield "legal", legal
    yield "illegal, with the nearest legal change", _illegal(family, legal)
    if "schedule" in family.knob_named:
        yield "illegal, two knobs have to change", family.config(PINGPONG)
        yield "illegal, three knobs have to change", family.config(PINGPONG | {"stages": 16})


def _illegal(family: Family, legal: Config) -> Config:
    """The config with the largest tile or the most loads: too much for registers or shared memory."""
    largest = {"tile_n": 256, "stages": 16, "columns": 4, "unroll": 16, "buffers": 2}
    taken = {
        name: value if value in knob.domain else knob.domain[-1] for name, value in largest.items()
        if (knob := family.knob_named.get(name))
    }  # fmt: skip
    return family.config({**legal.knobs, **taken})


def random_illegal(family: Family, problem: Gemm, legal: Config) -> list[Config]:
    """Illegal configs: half random in every knob, half random in two to seven knobs of a legal config."""
    dice, found = random.Random(0), list[Config]()
    while len(found) < RANDOM:
        changed = family.knobs if len(found) % 2 else dice.sample(family.knobs, dice.randint(2, 7))
        config = legal.changed({knob.name: dice.choice(knob.domain) for knob in changed})
        if not is_legal(family, problem, config):
            found.append(config)
    return found


def explain_often(family: Family, problems: Iterable[Gemm], config: Config) -> None:
    """Of each problem once."""
    for problem in problems:
        explain(family, problem, config)


def best(work: Callable[[], object]) -> float:
    """Shortest processor time of several runs, in seconds."""
    return min(seconds_of(work) for _ in range(RUNS))


def seconds_of(work: Callable[[], object]) -> float:
    """Processor time of one run, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    as_command(main)
