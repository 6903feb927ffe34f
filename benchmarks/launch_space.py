"""Launches random legal configs of every dtype and layout, to check that they run and give right results.

python -m benchmarks.launch_space --family sm90_wgmma --samples 500 --device cuda:0 --out benchmarks/results/F.md

Problems come in groups that share a shape, dtypes, layout, batch and epilogue; some extents are drawn to be
divisible by no tile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import numpy as np

from benchmarks.command import as_command, positive
from benchmarks.compile_space import EPILOGUES, check_target, draw_dtypes, legal_config
from benchmarks.facts import recordings
from benchmarks.published import add_out, publish
from space.config import Config
from space.devices import DeviceProfile
from space.family import family_named
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.plug import Family
from tuner.settings import settings
from tuner.studying.open_worker import open_worker
from workers.measurement import Measurement, Outcome
from workers.ports import Worker

#: Aligned, odd in one extent each, odd in all, small, deep.
_SHAPES = ((512, 768, 640), (333, 520, 264), (256, 253, 512), (64, 1040, 1000), (1, 2048, 512), (17, 96, 4096),
           (129, 65, 77), (1000, 1000, 1000), (2048, 1536, 256))  # fmt: skip
_FEW_ROWS = ((1, 4096, 4096), (2, 520, 264), (3, 253, 513), (4, 1040, 1000), (1, 2048, 65536), (4, 96, 14336),
             (1, 65, 77), (2, 1, 1), (3, 128256, 250))  # fmt: skip
SHAPES = {"sm90_wgmma": _SHAPES, "gemv": _FEW_ROWS, "mma_sync": _SHAPES}
CONFIGS_PER_PROBLEM = 8


def main() -> None:
    """Prints a line per problem, then the table, and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--family", choices=sorted(SHAPES), default="sm90_wgmma")
    options.add_argument("--samples", type=positive, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--device", default="cuda:0")
    add_out(options)
    given = options.parse_args()
    rng = np.random.default_rng(given.seed)
    started = time.perf_counter()
    measured: list[tuple[Gemm, Measurement]] = []
    with open_worker(given.device, settings()) as worker:
        check_target(family_named(given.family), worker.facts.profile)
        for number in range(-(-given.samples // CONFIGS_PER_PROBLEM)):
            problem = draw(family_named(given.family), rng, number, worker.facts.profile)
            measured += [(problem, one) for one in run(worker, family_named(given.family), problem, rng)]
        about = f"{worker.facts.name}, driver {worker.facts.driver}"
    lines = report(measured)
    print("\n".join(lines))
    about = f"{about}, {len(measured)} configs in {time.perf_counter() - started:.0f} s."
    publish("launch_space", given.out, about, "\n".join(lines), read=recordings(given.device))
    sys.exit(any(one.outcome is not Outcome.CORRECT for _, one in measured))


def draw(family: Family, rng: np.random.Generator, number: int, device: DeviceProfile | None = None) -> Gemm:
    """Draws a problem that the device has: dtypes and layouts in turn, everything else at random."""
    shapes = SHAPES[family.name]
    turns = [(dtype, layout) for layout in LAYOUTS for dtype in DTYPES
             if family.takes(Gemm.of(*shapes[0], dtype, layout), device)]  # fmt: skip
    dtype, layout = turns[number % len(turns)]
    dtypes = draw_dtypes(family, dtype, layout, shapes[0], rng, device)
    m, n, k = shapes[int(rng.integers(len(shapes)))]
    batch = 3 if rng.random() < 0.2 else 1
    return Gemm.of(m, n, k, dtypes, layout, batch, str(rng.choice(EPILOGUES)))


def run(worker: Worker, family: Family, problem: Gemm, rng: np.random.Generator) -> list[Measurement]:
    """Verifies and screens a few legal configs of one problem."""
    profile = worker.facts.profile
    configs: list[Config] = [legal_config(family, problem, rng, profile) for _ in range(CONFIGS_PER_PROBLEM)]
    done = list(worker.begin(problem).screen(configs))
    kinds = Counter(one.outcome.value for one in done)
    print(f"{problem.key}: {dict(kinds)}", flush=True)
    for one in done:
        if one.outcome is not Outcome.CORRECT:
            print(f"    {one.outcome.value} {one.config.knobs_text}: {one.detail}", flush=True)
    return done


def report(measured: list[tuple[Gemm, Measurement]]) -> list[str]:
    """The table, one row per dtype and layout, followed by the failures."""
    lines = ["| A × B → sum | layout | configs | correct |", "| --- | --- | --- | --- |"]
    rows: dict[tuple[str, str], list[bool]] = {}
    for problem, one in measured:
        word = f"{problem.dtype_a} × {problem.dtype_b} → {problem.dtype_acc}"
        rows.setdefault((word, problem.layout), []).append(one.outcome is Outcome.CORRECT)
    lines += [f"| {word} | {layout} | {len(right)} | {sum(right)} |" for (word, layout), right in rows.items()]
    right = sum(one.outcome is Outcome.CORRECT for _, one in measured)
    lines.append(f"| all | | {len(measured)} | {right} |")
    for problem, one in measured:
        if one.outcome is not Outcome.CORRECT:
            lines.append(f"\n- {one.outcome.value} `{problem.key}` `{one.config.knobs_text}`: {one.detail}")
    return lines


if __name__ == "__main__":
    as_command(main)
