"""What a torch program gets for products that nobody measured: `gemmtune.torch` with an empty store, beside torch.

python -m benchmarks.unmeasured benchmarks/problems/drawn_later.json --out benchmarks/results/unmeasured_h200.md

What is answered, a near problem's config or the model's first choice, is verified and timed in the first call, and
launched where it is faster than torch's operator. Then three programs are captured and timed in turn, each product
behind a small kernel: torch's own, what `gemmtune.torch` runs, and the answer, whatever it takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

    from benchmarks.deployed_measuring import Planted, as_seen, ours, sets_of, theirs, unlike, why_torch
    from benchmarks.deployed_timing import Arm, Graph, behind, in_turn, launches_of
    from gemmtune.torch import configure, sources
from benchmarks.deployed_table import mean
from benchmarks.named import named_problems
from benchmarks.published import add_out, publish
from benchmarks.restored import empty_store
from space.devices import profile_named
from space.kinds.gemm import Gemm
from space.rank import roofline_us

#: Seconds of each problem's turns.
TURNS_SECONDS: Final = 0.1
HEADER: Final = (
    "| problem | first call, s | runs | torch, µs | gain | of the answer |\n"
    "| --- | ---: | --- | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        us: microseconds of one product of `torch`, of what `runs`, and of the `answer`.
        why: why torch computes it; empty where the answer does.
    """

    problem: Gemm
    first_seconds: float
    us: dict[str, float]
    why: str

    def gain(self, arm: str) -> float:
        return self.us["torch"] / self.us[arm]

    def __str__(self) -> str:
        runs = "torch" if self.why else "the answer"
        return (f"| {self.problem.title} | {self.first_seconds:.2f} | {runs} | {self.us['torch']:.2f} "
                f"| {self.gain('runs'):.3f} | {self.gain('answer'):.3f} |")  # fmt: skip


def measured(listed: Path, store: Path, ends: float) -> Iterator[Row]:
    """The rows of a list's problems, until `ends` in monotonic seconds."""
    device = torch.cuda.get_device_name()
    small = torch.zeros(4096, device="cuda")
    for _, _, problem in named_problems(listed):
        if time.monotonic() > ends:
            return
        problem = as_seen(problem)
        expected_us = 2.0 + roofline_us(problem, profile_named(device))
        program, torchs = Arm(ours, partial(configure, store)), Arm(theirs(problem))
        if not (why := unlike(problem)):
            sets = sets_of(problem, launches_of(expected_us))
            why = refused(torchs, sets[0])
        if why:
            print(f"{problem.title}: {why}", flush=True)
            continue
        began = time.monotonic()
        why = why_torch(program, sets[0])
        torch.cuda.synchronize()
        first_seconds = time.monotonic() - began
        found = sources.chosen().find(problem, device).config
        arms = {"torch": torchs, "runs": program}
        if found is not None:
            arms["answer"] = Arm(ours, partial(configure, Planted(found, "")))
        graphs = {name: Graph.of(behind(small, arm), sets, launches_of(expected_us)) for name, arm in arms.items()}
        row = Row(problem, first_seconds, {"answer": float("inf")} | in_turn(graphs, TURNS_SECONDS), why)
        print(row, why, flush=True)
        torch.cuda.empty_cache()
        yield row


def refused(torchs: Arm, one: Any) -> str:  # noqa: ANN401
    """Why torch has no operator for a product, as for a few rows of int8; empty where it has."""
    try:
        torchs.product(one)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def summary(rows: Sequence[Row]) -> str:
    """Means and the slowest, of what runs and of the answers."""
    lines = []
    for arm, said in (("runs", "what runs"), ("answer", "answers alone")):
        gains = [row.gain(arm) for row in rows]
        behind_torch = sum(gain < 0.98 for gain in gains)
        lines.append(f"{said}: geometric mean {mean(gains):.3f} of torch's operator, slowest {min(gains):.3f}, "
                     f"{behind_torch} of {len(gains)} below 0.98")  # fmt: skip
    left = sum(bool(row.why) for row in rows)
    seconds = statistics.median(row.first_seconds for row in rows)
    return "\n\n".join([*lines, f"left to torch: {left}; a first call takes {seconds:.2f} s in the median"])


def main() -> None:
    """Prints each problem as it is measured, then the means."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path, help="list of problems that nobody measured")
    options.add_argument("--seconds", type=float, default=300.0, help="begin no problem after this time")
    add_out(options)
    given = options.parse_args()
    gpu_of_torch()
    torch.set_float32_matmul_precision("high")
    with empty_store() as empty:
        rows = [*measured(given.problems, empty, time.monotonic() + given.seconds)]
        configure()
    text = "\n".join([HEADER, *map(str, rows)])
    print(summary(rows))
    publish("unmeasured", given.out, summary(rows), text, read=[given.problems])


if __name__ == "__main__":
    as_command(main)
