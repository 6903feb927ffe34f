"""How well times under `sustained` repeat: 20 configs of a large product, each measured in five fresh processes.

python -m benchmarks.repeatability --out benchmarks/results/repeatability_h100.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, positive
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.config import Config
from space.enumerate import enumerate_all
from space.family import families_for
from space.kinds.gemm import Gemm
from tuner.studying.candidates import ranked, spread
from workers.build import Build
from workers.builder import Builder
from workers.cuda.bench import Bench
from workers.cuda.outputs import SLOTS
from workers.cuda.regimes import LONG, Rival, take_sustained
from workers.measurement import Policy

#: Promise: largest relative difference between a config's times.
PROMISED: Final = 0.015

HEADER: Final = "| config | µs, by process | widest |\n| --- | --- | ---: |"


def main() -> None:
    """Prints a table for each problem."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=["bf16:4096x4096x4096"], metavar="DTYPE:MxNxK")
    options.add_argument("--configs", type=positive, default=20)
    options.add_argument("--processes", type=positive, default=5)
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options.add_argument("--times", type=Path, help="measure once, here; builds are kept beside this JSON")
    add_out(options)
    given = options.parse_args()
    if given.configs > SLOTS:
        options.error(f"--configs {given.configs}: give at most {SLOTS}, as many as can be told apart")
    if given.times:
        times = measured(problem_of(given.problems[0]), given.configs, given.device, given.times.parent)
        given.times.write_text(json.dumps(times))
        return
    # Before a process is started: it would say what is wrong, and this one only that it failed.
    problems = {text: problem_of(text) for text in given.problems}
    paragraphs = []
    with tempfile.TemporaryDirectory() as folder:
        for text, problem in problems.items():
            runs = [in_fresh_process(text, given, Path(folder)) for _ in range(given.processes)]
            paragraphs.append("\n".join(table(problem, runs)))
            print(paragraphs[-1], flush=True)
    publish("repeatability", given.out, *paragraphs)


def in_fresh_process(text: str, given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """What `measured` returns, of a process that ends with it."""
    times = folder / "times.json"
    command = (
        sys.executable, "-m", "benchmarks.repeatability", text, "--times", str(times), "--configs",
        str(given.configs), "--device", str(given.device),
    )  # fmt: skip
    if code := subprocess.run(command, check=False).returncode:
        # It has said why.
        sys.exit(code)
    found: dict[str, float] = json.loads(times.read_text())
    return found


def measured(problem: Gemm, configs: int, device: int, cache: Path) -> dict[str, float]:
    """Microseconds of candidates under `sustained`, one block each, by key. The same candidates every time."""
    bench, builder = Bench(device, cache), Builder(cache)
    builder.arch = bench.facts.arch
    bench.prepare(problem, seed=1)
    rivals = []
    for config, build in builder.builds(problem, chosen(bench, problem, configs)):
        if isinstance(build, Build):
            ready = bench.ready(config, build.digest)
            verdict = bench.verify(ready)
            if not verdict.reason:
                rivals.append(Rival(ready, verdict))
    builder.close()
    # In one order: builds finish in another one each time.
    rivals.sort(key=lambda rival: rival.ready.config.key)
    take_sustained(bench, rivals, replace(LONG, passes=1), lambda rival: True)
    return {rival.ready.config.key: rival.taken[Policy.SUSTAINED].median_us for rival in rivals}


def chosen(bench: Bench, problem: Gemm, count: int) -> list[Config]:
    """Candidates with short estimates, half of them of structures as different as possible."""
    profile = bench.facts.profile
    spaces = enumerate_all(families_for(bench.facts.arch, problem), problem, profile)
    return spread([config for _, config in ranked(spaces, profile)], count)


def table(problem: Gemm, runs: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """A line per config that every process found correct, how many keep the promise, and which others only some did."""
    yield f"{problem.title}, {len(runs)} processes:\n"
    yield HEADER
    widths = []
    keys = dict.fromkeys(key for run in runs for key in run)
    for key in (key for key in keys if all(key in run for run in runs)):
        times = [run[key] for run in runs]
        widths.append((max(times) - min(times)) / statistics.median(times))
        yield f"| `{key}` | {', '.join(f'{us:.2f}' for us in times)} | {widths[-1]:.2%} |"
    within = sum(width <= PROMISED for width in widths)
    yield (
        f"\n{within} of {len(widths)} configs repeat within {PROMISED:.1%}; the median config within "
        f"{statistics.median(widths):.2%}, the worst within {max(widths):.2%}. "
        f"Widest: (largest − smallest time) / median."
        if widths else "\nNo config was correct in every process."
    )
    for key in keys:
        if lacking := sum(key not in run for run in runs):
            yield f"- `{key}` could not be built or was wrong in {lacking} of {len(runs)} processes."


if __name__ == "__main__":
    as_command(main)
