"""First contact with a GPU: a few candidates of a few shapes, one line each, then the finals.

python -m benchmarks.smoke_gpu [SHAPE …]
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

from space.arch import H200
from space.config import Config
from space.enumerate import enumerate_space
from space.family import family_named
from space.problem import Problem
from space.rank import rank
from tuner.candidates import spread
from tuner.stats import ratio
from workers.cuda.worker import CudaWorker
from workers.measurement import Outcome, Policy

SHAPES = ("512x512x512", "1000x1000x1000", "333x4104x2056", "4096x4096x4096", "8192x8192x8192")
FAMILY = family_named("sm90_wgmma")
MOST = 160


def candidates(problem: Problem, most: int) -> list[Config]:
    """A spread of the ranked space, and a few of the legal but pruned corners."""
    ranked = rank(enumerate_space(FAMILY, problem), H200).configs()
    corners: list[dict[str, object]] = [
        {"tile_k": 32, "swizzle_a": 64, "swizzle_b": 32, "epilogue": "direct"},
        {"tile_m": 192, "consumer_warpgroups": 3, "tile_n": 192, "stages": 3, "epilogue": "direct"},
        {"tile_n": 200, "stages": 3, "cluster_n": 4, "epilogue": "direct"},
        {"tile_m": 64, "consumer_warpgroups": 1, "tile_n": 8, "tile_k": 128, "swizzle_a": 64, "stages": 5},
    ]
    return spread(ranked, most) + [FAMILY.config(corner) for corner in corners]


def main(shapes: list[str]) -> None:
    """Prints what happens; one failing shape does not stop the others."""
    with CudaWorker(0, Path(tempfile.gettempdir()) / "gemmtune-cache") as worker:
        print(worker.facts, worker.libraries, worker.notices)
        for shape in shapes:
            try:
                one(worker, Problem.parse(shape))
            except Exception:
                traceback.print_exc(file=sys.stdout)


def one(worker: CudaWorker, problem: Problem) -> None:
    """One shape."""
    started = time.perf_counter()
    round_ = worker.begin(problem, Policy.COLD_GRAPH)
    print(f"== {problem.shape}: prepared in {time.perf_counter() - started:.2f} s")
    started = time.perf_counter()
    measured = list(round_.screen(candidates(problem, MOST)))
    seconds = time.perf_counter() - started
    print(f"{len(measured)} candidates in {seconds:.2f} s, {len(measured) / seconds:.1f}/s")
    for m in sorted(measured, key=lambda m: (m.outcome is Outcome.CORRECT, m.median_us)):
        if m.outcome is not Outcome.CORRECT or m.median_us < 1.25 * min(n.median_us for n in measured):
            worst = f"{m.verification.worst_ratio:.2f}" if m.verification else "-"
            speed = f"{m.median_us:9.2f} us {problem.tflops(m.median_us):6.1f} TF" if m.samples_us else ""
            print(f"{m.outcome.value:13} {speed:22} {worst:5} {m.config.knobs_text} {m.detail[:200]}", flush=True)
    best = sorted((m for m in measured if m.outcome is Outcome.CORRECT), key=lambda m: m.median_us)[:4]
    finals = round_.finals([m.config for m in best], 30)
    library = [m for m in finals if m.config.family == "cublaslt"]
    for m in finals:
        against = ratio(library[0].samples_us, m.samples_us) if library and m.samples_us else None
        versus = f"{against.value:.3f}" if against else "-"
        print(f"final {m.median_us:9.2f} us {problem.tflops(m.median_us):6.1f} TF {versus} "
              f"{m.config.knobs_text} {m.note} {m.clocks and m.clocks.sm_mhz} {m.detail}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:] or list(SHAPES))
