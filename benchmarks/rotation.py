"""How times depend on the bytes that operands rotate through, of torch's product and of what is served.

python -m benchmarks.rotation benchmarks/problems/few_rows.json benchmarks/stores/h200_few_rows --out FILE

A program reads a whole model between two launches on the same weights. A benchmark rotates through fewer bytes, and
what a kernel keeps in L2 from one round to the next looks like speed there. Each problem that memory bounds is timed in
turns: torch's product, what is served, the same config with weights marked `evict_first`, and a kernel that only moves
the bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.deployed_measuring import Planted, as_seen, ours, sets_of, theirs, unlike
from benchmarks.deployed_table import mean
from benchmarks.deployed_timing import Arm, Graph, in_turn, launches_of
from benchmarks.floors import bound_by_memory, floors
from benchmarks.named import named_problems
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from gemmtune.torch import configure
from space.config import Config
from space.devices import find_profile
from space.kinds.gemm import Gemm
from space.rank import roofline_us

#: Megabytes of a rotation.
ROTATED_MB: Final = (200, 600, 2_000, 8_000)
ARMS: Final = ("torch", "served", "evict_first", "floor")
TURNS_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Seen:
    """Times of one problem in turns: microseconds by megabytes and arm."""

    name: str
    problem: Gemm
    us: dict[tuple[int, str], float]


def hinted(problem: Gemm, config: Config) -> Config:
    """The config whose weights stream through L2 (`cache_hint`)."""
    if config.family == "gemv":
        return config.changed({"cache_hint": "evict_first"})
    weights_are_a = (config["swap_ab"] == 1) == (problem.m <= problem.n)
    return config.changed({"cache_hint": "stream_a" if weights_are_a else "stream_b"})


def seen(name: str, problem: Gemm, config: Config, floor: Arm, expected_us: float) -> Seen:
    """Times one problem at each size of rotation."""
    most = launches_of(expected_us)
    every = sets_of(problem, most)
    drawn = len(every)
    configs = {"served": config, "evict_first": hinted(problem, config)}
    arms = {"torch": Arm(theirs(problem)), "floor": floor} | {
        arm: Arm(ours, partial(configure, Planted(each, ""), trusted=["measured"])) for arm, each in configs.items()
    }
    us = dict[tuple[int, str], float]()
    for megabytes in ROTATED_MB:
        count = max(2, -(-megabytes * 1_000_000 // problem.min_bytes))
        while len(every) < count:
            a, b, *outputs = every[len(every) % drawn]
            every.append((a.clone(), b.clone(), *(torch.empty_like(one) for one in outputs)))
        graphs = {arm: Graph.of(one, every[:count], max(most // count, 1) * count) for arm, one in arms.items()}
        us |= {(megabytes, arm): taken for arm, taken in in_turn(graphs, TURNS_SECONDS).items()}
    return Seen(name, problem, us)


def measured(problems: Path, stores: Path) -> Iterator[Seen]:
    """Measures each problem that memory bounds, and for which a store's best is one of our own tiles or `gemv`."""
    device, floor = torch.cuda.get_device_name(), floors(0)["2 a multiprocessor"]
    profile = find_profile(device)
    if profile is None:
        raise SystemExit(f"{device} has no profile: what bounds a product is not known")
    wanted = [
        (name, as_seen(problem)) for name, _, problem in named_problems(problems)
        if not unlike(problem) and bound_by_memory(problem, profile)
    ]  # fmt: skip
    for store in stores_in(stores):
        for name, problem in wanted:
            best = store.best(problem, device)
            if best is None or best.config.family not in ("sm90_wgmma", "gemv"):
                continue
            try:
                yield seen(name, problem, best.config, floor, 2.0 + roofline_us(problem, profile))
            except RuntimeError as error:  # torch multiplies no such operands
                print(f"{name}: {error}", flush=True)
            configure()
            torch.cuda.empty_cache()


def line(one: Seen) -> str:
    """The problem's row."""
    cells = [" / ".join(f"{one.us[megabytes, arm]:.2f}" for megabytes in ROTATED_MB) for arm in ARMS]
    return f"| {one.problem.dtype} {one.problem.shape} | {one.problem.min_bytes / 1e6:.1f} | {' | '.join(cells)} |"


def changes(rows: Sequence[Seen]) -> str:
    """Geometric means of the times, as multiples of those in the largest rotation."""
    largest = ROTATED_MB[-1]

    def change(megabytes: int, arm: str) -> float:
        return mean([one.us[megabytes, arm] / one.us[largest, arm] for one in rows])

    cells = [" / ".join(f"{change(megabytes, arm):.3f}" for megabytes in ROTATED_MB) for arm in ARMS]
    return f"| of {largest / 1_000:.0f} GB ({len(rows)}) | | {' | '.join(cells)} |"


def main() -> int:
    """Prints a row per problem, then means."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path)
    options.add_argument("stores", type=Path, help="folder of backups with the bests")
    add_out(options)
    given = options.parse_args()
    heading = [
        f"Microseconds in turns, operands rotating through {' / '.join(map(str, ROTATED_MB))} MB.\n",
        f"| problem | MB | {' | '.join(ARMS)} |", "| --- " * (2 + len(ARMS)) + "|",
    ]  # fmt: skip
    print(*heading, sep="\n", flush=True)
    rows, lines = list[Seen](), list(heading)
    for one in measured(given.problems, given.stores):
        rows.append(one)
        lines.append(line(one))
        print(lines[-1], flush=True)
    lines.append(changes(rows))
    print(lines[-1])
    publish("rotation", given.out, "\n".join(lines), read=[given.problems, given.stores])
    return 0


if __name__ == "__main__":
    sys.exit(main())
