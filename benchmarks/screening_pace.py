"""Measures the gain of pacing: scatter of repeated screenings between pauses, as timed and at the settled clock.

python -m benchmarks.screening_pace 4096x4096x4096 --out benchmarks/results/screening_pace_h200.md
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from benchmarks.published import add_out, publish
from space.config import Config
from space.enumerate import enumerate_space
from space.kinds.gemm import Gemm
from space.rank import rank
from space.registry import family_named
from tuner.studying.candidates import spread
from workers.cuda.worker import CudaWorker
from workers.measurement import Measurement, Outcome, Policy

_PACE: Final = re.compile(r"pace ([\d.]+)")
#: Idle seconds between two candidates, as while waiting for a build.
PAUSES_SECONDS: Final = (0.0, 0.0, 0.02, 0.1, 0.3)


def scatter(by_config: list[list[float]]) -> float:
    """Root mean square of log(time / mean of the config's times)."""
    apart = [math.log(time / statistics.geometric_mean(times)) for times in by_config for time in times]
    return math.sqrt(sum(one * one for one in apart) / len(apart))


def screened(worker: CudaWorker, problem: Gemm, configs: list[Config], turns: int) -> list[Measurement]:
    """Screens every config in each turn, in random order, after random pauses."""
    draw, round_ = random.Random(1), worker.begin(problem, Policy.COLD_GRAPH)
    taken = list(round_.screen(configs))  # Builds them and heats the GPU.
    taken.clear()
    for config in (config for _ in range(turns) for config in draw.sample(configs, len(configs))):
        time.sleep(draw.choice(PAUSES_SECONDS))
        taken += round_.screen([config])
    return [one for one in taken if one.outcome is Outcome.CORRECT]


def main() -> None:
    """Prints one row per problem."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("shapes", nargs="+", type=Gemm.parse)
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options.add_argument("--configs", type=int, default=12)
    options.add_argument("--turns", type=int, default=8)
    add_out(options)
    given = options.parse_args()
    lines = ["| problem | screenings | at the power limit | scatter as timed | scatter at the settled clock |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    print(*lines, sep="\n", flush=True)
    family = family_named("sm90_wgmma")
    with tempfile.TemporaryDirectory() as folder, CudaWorker(given.device, Path(folder), 10.0) as worker:
        for problem in given.shapes:
            configs = spread(rank(enumerate_space(family, problem), worker.facts.profile).configs(), given.configs)
            taken = screened(worker, problem, configs, given.turns)
            timed, settled = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
            for one in taken:
                found = _PACE.search(one.note)
                settled[one.config.key].append(one.median_us)
                timed[one.config.key].append(one.median_us / float(found[1]) if found else one.median_us)
            paced = sum("pace" in one.note for one in taken) / len(taken)
            lines.append(f"| {problem.shape} | {len(taken)} | {paced:.0%} | {scatter([*timed.values()]):.2%} | "
                         f"{scatter([*settled.values()]):.2%} |")  # fmt: skip
            print(lines[-1], flush=True)
        about = f"{worker.facts.name}, driver {worker.facts.driver}; {given.configs} configs, {given.turns} times each."
    publish("screening_pace", given.out, about, "\n".join(lines))


if __name__ == "__main__":
    main()
