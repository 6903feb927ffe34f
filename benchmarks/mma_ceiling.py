"""Times `mma_sync` against a bare loop of its instruction on the same GPU, and its estimate's order against the clock.

python -m benchmarks.mma_ceiling --out benchmarks/results/mma_ceiling_h200.md
python -m benchmarks.mma_ceiling --order 300 --out benchmarks/results/mma_order_h200.md

The bare loop multiplies fragments that stay in registers: random ones, since zeros take less power. It runs for about
as long as the product that it is compared with. Without `--order`, the candidates that the estimate ranks first are
verified and timed; with it, candidates drawn over the whole space, and the table says how fast the best of the
estimate's first sixteen of them is, as a share of the best of all.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from cuda.bindings import driver as cu

from benchmarks.command import as_command
from benchmarks.kernels.mma_rate import SOURCE as MMA_RATE
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.config import Config
from space.devices import DeviceProfile, profile_named
from space.enumerate import enumerate_space
from space.family import family_named
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from space.rank import Ranked, rank
from tuner.settings import settings
from tuner.studying.open_worker import open_worker
from workers.build import BuildFailure, compile_source, nvrtc_version
from workers.cuda.device import open_device
from workers.cuda.driver import Arguments, Buffer, Launch, Module, Stopwatch, Stream, check
from workers.measurement import Measurement, Outcome
from workers.ports import Worker

FAMILY: Final = family_named("mma_sync")
PROBLEMS: Final = tuple(f"{dtype}:{side}x{side}x{side}" for dtype in ("bf16", "fp16", "tf32", "int8")
                        for side in (4096, 8192))  # fmt: skip
ORDER_PROBLEMS: Final = (
    "bf16:4096x4096x4096", "bf16:2048x2048x2048", "bf16:512x512x4096", "bf16:16x4096x4096", "bf16:64x28672x4096",
    "fp16:1024x8192x1024", "fp16:333x4100x2056", "tf32:2048x2048x2048", "tf32:128x4096x4096", "int8:4096x4096x4096",
    "int8:32x8192x8192", "int8:1000x1000x1000",
)  # fmt: skip
#: As in mma_rate/entry.cuh: threads of a block, words of each, and blocks that fit a multiprocessor.
THREADS, FRAGMENT_WORDS, BLOCKS_PER_SM = 128, 32, 2
#: Multiplications and additions of one step of a warp, times the bytes of an element: 4 x 8 instructions of 16 x 8, 32
#: bytes of K each.
STEP_BYTES: Final = 2 * 4 * 8 * 16 * 8 * 32
#: Candidates timed for a product, timed runs of the bare loop, and the ranks that count for the order.
CANDIDATES, RUNS, FIRST = 48, 9, 16


class Ceiling:
    """The bare loop on one GPU."""

    def __init__(self, ordinal: int) -> None:
        self.facts = open_device(ordinal)
        self._stream = Stream()
        words = THREADS * FRAGMENT_WORDS
        self._from = Buffer.allocate(4 * words)
        self._to = Buffer.allocate(4 * THREADS * BLOCKS_PER_SM * self.facts.sm_count)
        # Halves of 0x3Cxx or 0xBCxx are about 1 in every 16-bit format; as bytes and as tf32 they are finite too.
        noise = np.random.default_rng(1).integers(0, 1 << 16, 2 * words, np.uint16)
        halves = (noise & 0x83FF | 0x3C00).astype(np.uint16)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._from.address, halves.ctypes.data, halves.nbytes))

    def tflops(self, problem: Gemm) -> float:
        """The median rate of loops that take about as many operations as the product, in TFLOP/s."""
        built = compile_source(rate_source(problem), self.facts.arch, None)
        if isinstance(built, BuildFailure):
            raise SystemExit(f"mma_rate doesn't compile: {built.reason}")
        launch = Launch(Module(built.cubin).function("mma_rate"), THREADS, 0)
        blocks = BLOCKS_PER_SM * self.facts.sm_count
        launch.set_grid(blocks)
        each = STEP_BYTES // DTYPE_BYTES[problem.dtype_a]
        steps = max(problem.flops // (each * THREADS // 32 * blocks), 1)
        arguments = Arguments(
            ctypes.c_void_p(self._from.address), ctypes.c_void_p(self._to.address), ctypes.c_int(steps)
        )
        taken = []
        for _ in range(RUNS):
            watch = Stopwatch()
            with watch.around(self._stream):
                launch(self._stream, arguments)
            watch.wait()
            taken.append(watch.us)
        return each * THREADS // 32 * blocks * steps / statistics.median(taken) / 1e6


def rate_source(problem: Gemm) -> str:
    """The text of the bare loop for a problem's dtypes."""
    sums = {"integers": int(problem.dtype_acc == "s32"), "half_sums": int(problem.dtype_acc == "fp16")}
    return MMA_RATE.render({"input_a": problem.dtype_a, "input_b": problem.dtype_b, **sums})


def ranked_for(problem: Gemm, profile: DeviceProfile) -> Ranked:
    """The family's candidates for a problem, by its estimate."""
    return rank(enumerate_space(FAMILY, problem, profile), profile)


def drawn(ranked: Ranked, count: int, rng: np.random.Generator) -> list[Config]:
    """Candidates drawn evenly over the ranking, in its order."""
    places = np.sort(rng.choice(len(ranked), min(count, len(ranked)), replace=False))
    return [ranked.config(int(place)) for place in places]


def right(worker: Worker, problem: Gemm, configs: Sequence[Config]) -> dict[Config, Measurement]:
    """The measurements of those that are right; the others are printed."""
    found = {}
    for one in worker.begin(problem).screen(configs):
        if one.outcome is Outcome.CORRECT:
            found[one.config] = one
        else:
            print(f"    {one.outcome.value} {one.config.knobs_text}: {one.detail}", flush=True)
    return found


def share_of_first(configs: Sequence[Config], times_us: dict[Config, float]) -> float:
    """The best time of all as a share of the best among the first `FIRST` that are right."""
    ordered = [times_us[config] for config in configs if config in times_us]
    return min(ordered) / min(ordered[:FIRST])


def ceiling_rows(worker: Worker, problems: Sequence[Gemm], ceiling: Ceiling) -> Iterator[str]:
    """One row per product."""
    profile = profile_named(worker.facts.name)
    for problem in problems:
        most = ceiling.tflops(problem)
        found = right(worker, problem, ranked_for(problem, profile).configs(CANDIDATES))
        best = min(found.values(), key=lambda one: one.median_us)
        rate = problem.tflops(best.median_us)
        yield (f"| {problem.dtype} {problem.shape} | {most:.0f} | {best.median_us:.1f} | {rate:.0f} | "
               f"{rate / most:.1%} | `{best.config.knobs_text}` |")  # fmt: skip


def order_rows(worker: Worker, problems: Sequence[Gemm], count: int) -> Iterator[str]:
    """One row per product."""
    profile, rng = profile_named(worker.facts.name), np.random.default_rng(1)
    for problem in problems:
        configs = drawn(ranked_for(problem, profile), count, rng)
        times = {config: one.median_us for config, one in right(worker, problem, configs).items()}
        yield (f"| {problem.dtype} {problem.shape} | {len(configs)} | {len(times)} | {min(times.values()):.1f} | "
               f"{share_of_first(configs, times):.1%} |")  # fmt: skip


def main() -> None:
    """Prints one row per product and writes the table with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", help="as DTYPE:MxNxK")
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options.add_argument("--order", type=int, default=0, metavar="CONFIGS", help="time that many candidates a product")
    add_out(options)
    given = options.parse_args()
    problems = [problem_of(text) for text in given.problems or (ORDER_PROBLEMS if given.order else PROBLEMS)]
    if given.order:
        lines = ["| product | candidates | right | best, µs | best of the first 16 |",
                 "| --- | --- | --- | --- | --- |"]  # fmt: skip
    else:
        lines = ["| product | bare loop, TFLOP/s | best, µs | TFLOP/s | of the loop | config |",
                 "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    with open_worker(f"cuda:{given.device}", settings()) as worker:
        about = f"{worker.facts.name}, driver {worker.facts.driver}, NVRTC {nvrtc_version()}."
        print(about, *lines, sep="\n", flush=True)
        rows = (order_rows(worker, problems, given.order) if given.order
                else ceiling_rows(worker, problems, Ceiling(given.device)))  # fmt: skip
        for row in rows:
            lines.append(row)
            print(row, flush=True)
    publish("mma_ceiling", given.out, about, "\n".join(lines))


if __name__ == "__main__":
    as_command(main)
