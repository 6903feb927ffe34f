"""Measures how many candidates per second are verified and screened, and how busy the GPU is.

python -m benchmarks.throughput --out benchmarks/results/throughput_h100.md

Builds are cached beforehand. A tune's proposals depend on its measurements, so it may still build some (`built`).
`until finals` is set-up and screening. `busy` is the GPU's time on candidates, from events around their work,
over the wall time; `NVML` is the driver's figure, the share of time with a kernel on the GPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, positive
from benchmarks.gpu_use import GpuUse, gpu_of
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.config import Config
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.candidates import candidates_for, spread
from tuner.studying.guidance import guidance_for
from tuner.studying.study import Budget, Progress, tune
from workers.cuda.worker import CudaWorker
from workers.measurement import Outcome

PROBLEMS: Final = (
    "bf16:512x512x512", "bf16:1024x1024x1024", "bf16:2048x2048x2048", "bf16:4096x4096x4096", "bf16:128x28672x4096",
    "bf16:4095x4097x4104", "fp8_e4m3:4096x4096x4096", "int8:4096x4096x4096",
)  # fmt: skip
HEADER: Final = (
    "| problem | what | candidates | correct | built | s | candidates/s | busy | NVML |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass
class Watched:
    """Time and number of builds of a stretch of work."""

    seconds: float = 0.0
    busy: float = 0.0
    nvml: float | None = None
    built: int = 0


class Started:
    """Start of a stretch of work."""

    def __init__(self, worker: CudaWorker) -> None:
        self._worker = worker
        self._kept, self._busy = _kept(worker), worker.gpu_busy_seconds()
        self._at = time.perf_counter()

    def until_now(self) -> Watched:
        """Statistics of the stretch; no question to the GPU may be pending."""
        seconds = time.perf_counter() - self._at
        busy = (self._worker.gpu_busy_seconds() - self._busy) / seconds
        return Watched(seconds, busy, built=_kept(self._worker) - self._kept)


def _kept(worker: CudaWorker) -> int:
    """Number of builds in the cache; each has a cubin and a note."""
    return sum(path.is_file() for path in worker.cache_dir.rglob("*")) // 2


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=list(PROBLEMS), help="DTYPE:MxNxK")
    options.add_argument("--candidates", type=positive, default=256)
    options.add_argument("--device", type=int, default=0)
    options.add_argument("--cache", type=Path, help="keep builds here")
    add_out(options)
    given = options.parse_args()
    lines = [HEADER]
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = given.cache or Path(folder) / "cache"
        with CudaWorker(given.device, cache) as worker:
            alone = "; ".join(worker.notices) or "alone on the GPU"
            about = f"{worker.facts.name}, driver {worker.facts.driver}; {alone}"
            for text in given.problems:
                for line in rows(worker, problem_of(text), given.candidates, Path(folder)):
                    lines.append(line)
                    print(line, flush=True)
                # An interrupted run keeps its results.
                publish("throughput", given.out, about, "\n".join(lines))


def rows(worker: CudaWorker, problem: Gemm, count: int, folder: Path) -> Iterator[str]:
    """A screening alone, and a whole tune: proposals, store and finals included."""
    ranked = candidates_for(problem, worker)
    candidates: list[Config] = spread(ranked, count)
    build(worker, problem, candidates)
    with watched(worker) as prepared:
        round_ = worker.begin(problem)
    yield _row(problem, "operands and reference", 0, 0, prepared)
    with watched(worker) as screened:
        measured = list(round_.screen(candidates))
    correct = sum(m.outcome is Outcome.CORRECT for m in measured)
    yield _row(problem, "screening", len(measured), correct, screened)
    db = database_url(str(folder / f"{problem.dtype}-{problem.shape}.db"))
    # The first tune builds what it proposes; the second one, with the same seed, finds it all in the cache.
    with Store.open(db) as store:
        guidance = guidance_for(worker.facts.name, settings().model_dir)
        tune(store, worker, problem, Budget(count), fresh=True, guidance=guidance)
        begun, before = Started(worker), list[Watched]()

        def watch(progress: Progress) -> None:
            if progress.phase == "finals":
                before.append(begun.until_now())

        with watched(worker) as tuned:
            report = tune(store, worker, problem, Budget(count), fresh=True, guidance=guidance, watch=watch)
    tried = report.best.tried
    correct = tried - sum(report.best.failed.values())
    yield _row(problem, "tune", tried, correct, tuned)
    yield _row(problem, "until finals", tried, correct, before[0])


def build(worker: CudaWorker, problem: Gemm, candidates: list[Config]) -> None:
    """Fills the cache."""
    for _ in worker.builder.builds(problem, candidates):
        pass


@contextmanager
def watched(worker: CudaWorker) -> Iterator[Watched]:
    """Measures the block."""
    taken, started = Watched(), Started(worker)
    with GpuUse([gpu_of(worker.facts.uuid)]) as use:
        yield taken
        found = started.until_now()
    taken.seconds, taken.busy, taken.built, taken.nvml = found.seconds, found.busy, found.built, use.share()


def _row(problem: Gemm, what: str, count: int, correct: int, taken: Watched) -> str:
    rate = f"{count / taken.seconds:.1f}" if count else "–"
    name = f"{problem.title}"
    nvml = "–" if taken.nvml is None else f"{taken.nvml:.0%}"
    return (
        f"| {name} | {what} | {count or '–'} | {correct or '–'} | {taken.built} | {taken.seconds:.2f} | {rate} | "
        f"{taken.busy:.0%} | {nvml} |"
    )


if __name__ == "__main__":
    as_command(main)
