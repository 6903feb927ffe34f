"""How times depend on the bytes that operands rotate through, of torch's product and of what is served.

python -m benchmarks.rotation benchmarks/problems/few_rows.json benchmarks/stores/h200_few_rows --out FILE

A program reads a whole model between two launches on the same weights. A benchmark rotates through fewer bytes, and
what a kernel keeps in L2 from one round to the next looks like speed there. Each problem that memory bounds is timed in
turns: torch's product, the config that is served, without and with weights marked `evict_first`, and a kernel that only
moves the bytes. Under `chain` each runs behind a small kernel, whose time counts too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

from benchmarks.deployed_measuring import Planted, ours, sets_of, theirs
from benchmarks.deployed_table import mean
from benchmarks.deployed_timing import Arm, Graph, behind, in_turn, launches_of
from benchmarks.floors import bound_by_memory, measured, moving
from benchmarks.published import add_out, publish
from gemmtune.torch import configure
from space.config import Config
from space.families.sm90_wgmma.operands import operand_streamed
from space.family import is_own
from space.kinds.gemm import Gemm
from tuner.evidence.records import Best

#: Megabytes of a rotation.
ROTATED_MB: Final = (200, 600, 4_000, 16_000)
#: `without` and `evict_first`: what is served, and how its weights are marked.
ARMS: Final = ("torch", "without", "evict_first", "moved")
REGIMES: Final = ("turns", "chain")
TURNS_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Seen:
    """Microseconds of one problem by regime, megabytes and arm."""

    problem: Gemm
    us: dict[tuple[str, int, str], float]


def hinted(problem: Gemm, config: Config) -> dict[str, Config]:
    """The config without a hint, and with weights that stream through L2."""
    streamed = "evict_first"
    if config.family != "gemv":
        weights_are_a = (config["swap_ab"] == 1) == (operand_streamed(problem) == "b")
        streamed = "stream_a" if weights_are_a else "stream_b"
    return {"without": config.changed({"cache_hint": "none"}), "evict_first": config.changed({"cache_hint": streamed})}


def seen(moved: Arm, _: str, problem: Gemm, best: Best, expected_us: float) -> Seen | None:
    """Times one problem at each size of rotation; None where the library's algorithm is served, which has no hint."""
    if not is_own(best.config):
        return None
    most, small = launches_of(expected_us), torch.zeros(4096, device="cuda")
    every = sets_of(problem, most)
    drawn = len(every)
    arms = {"torch": Arm(theirs(problem)), "moved": moved} | {
        arm: Arm(ours, partial(configure, Planted(each, ""), trusted=["measured"]))
        for arm, each in hinted(problem, best.config).items()
    }
    us = dict[tuple[str, int, str], float]()
    for megabytes in ROTATED_MB:
        count = max(2, -(-megabytes * 1_000_000 // problem.min_bytes))
        while len(every) < count:
            a, b, *outputs = every[len(every) % drawn]
            every.append((a.clone(), b.clone(), *(torch.empty_like(one) for one in outputs)))
        launches = max(most // count, 1) * count
        for regime, of in (("turns", lambda arm: arm), ("chain", partial(behind, small))):
            graphs = {name: Graph.of(of(arm), every[:count], launches) for name, arm in arms.items()}
            us |= {(regime, megabytes, name): taken for name, taken in in_turn(graphs, TURNS_SECONDS).items()}
    return Seen(problem, us)


def lines_of(one: Seen) -> list[str]:
    """The problem's rows, one for each regime."""
    made = []
    for regime in REGIMES:
        cells = [" / ".join(f"{one.us[regime, megabytes, arm]:.2f}" for megabytes in ROTATED_MB) for arm in ARMS]
        shown = f"{one.problem.dtype} {one.problem.shape} | {one.problem.min_bytes / 1e6:.1f}"
        made.append(f"| {shown} | {regime} | {' | '.join(cells)} |")
    return made


def changes(rows: Sequence[Seen]) -> list[str]:
    """Geometric means of the times, as multiples of those in the largest rotation."""
    largest, made = ROTATED_MB[-1], []
    for regime in REGIMES:
        cells = [
            " / ".join(
                f"{mean([one.us[regime, each, arm] / one.us[regime, largest, arm] for one in rows]):.3f}"
                for each in ROTATED_MB
            )
            for arm in ARMS
        ]
        made.append(f"| of the last ({len(rows)}) | | {regime} | {' | '.join(cells)} |")
    return made


def main() -> int:
    """Prints a row per problem, then means."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path)
    options.add_argument("stores", type=Path, nargs="+", help="folders of backups with the bests")
    add_out(options)
    given = options.parse_args()
    gpu_of_torch()
    heading = [
        f"Microseconds, operands rotating through {' / '.join(map(str, ROTATED_MB))} MB.\n",
        f"| problem | MB | regime | {' | '.join(ARMS)} |", "| --- " * (3 + len(ARMS)) + "|",
    ]  # fmt: skip
    print(*heading, sep="\n", flush=True)
    rows, lines = list[Seen](), list(heading)
    moved = moving()["2 a multiprocessor, kept"]
    for one in measured(given.problems, given.stores, bound_by_memory, partial(seen, moved)):
        if one is None:
            continue
        rows.append(one)
        lines += lines_of(one)
        print(*lines[-2:], sep="\n", flush=True)
    lines += changes(rows)
    print(*lines[-2:], sep="\n")
    publish("rotation", given.out, "\n".join(lines), read=[given.problems, *given.stores])
    return 0


if __name__ == "__main__":
    as_command(main)
