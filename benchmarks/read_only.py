"""Times a kernel that only reads a product's bytes: a lower bound for kernels for few rows.

python -m benchmarks.read_only --out benchmarks/results/read_only_h200.md

The kernel has as many blocks as the device has multiprocessors; each loads its share with TMA, without
products, sums or stores. Launches are timed like candidates. `early` is programmatic dependent launch; `ahead` is the
number of 8 KiB pieces that a block prefetches into L2 before the previous kernel ends. The copy rate is that of the
driver's copy of a gibibyte, counting read and written bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Iterator
from typing import Final

import numpy as np
from cuda.bindings import driver as cu

from benchmarks.kernels.read_only import SOURCE as READ_ONLY
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.kinds.gemm import Gemm
from workers.build import BuildFailure, compile_source, nvrtc_version
from workers.cuda.clocks import Monitor, processes_of
from workers.cuda.copies import Copy
from workers.cuda.device import open_device
from workers.cuda.driver import Arguments, Buffer, Launch, Module, Stopwatch, Stream, check
from workers.cuda.operands import cold_copies
from workers.cuda.timing import TimedGraph

PROBLEMS: Final = ("fp8_e4m3:1x2112x7168", "fp8_e4m3:16x2112x7168", "bf16:16x2112x7168", "bf16:16x4096x14336",
                   "bf16:16x28672x4096")  # fmt: skip
#: `kPieceBytes` of read_only/entry.cuh.
PIECE_BYTES: Final = 8192
#: Pieces of a ring: as many as shared memory holds, and few enough for a block of the next launch.
RINGS: Final = (26, 13)
AHEAD: Final = (0, 4, 64)
COPY_BYTES: Final = 1 << 30
REPLAYS: Final = 20


class Reader:
    """The kernel, its memory, and the streams for recording and timing."""

    def __init__(self, ordinal: int) -> None:
        present = processes_of(ordinal)
        self.facts = open_device(ordinal)
        self.driver = Monitor(self.facts.uuid, present).driver
        built = compile_source(READ_ONLY.render(), self.facts.arch, None)
        if isinstance(built, BuildFailure):
            raise SystemExit(f"read_only doesn't compile: {built.reason}")
        self._function = Module(built.cubin).function("read_only")
        self._stream, self._recorder = Stream(), Stream()
        self._memory = Buffer.allocate(2 * COPY_BYTES)
        noise = np.random.default_rng(1).integers(0, 256, COPY_BYTES, np.uint8)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(self._memory.address, noise.ctypes.data, COPY_BYTES))

    def copy_tbs(self) -> float:
        """The driver's copy rate in TB/s."""
        taken = []
        for _ in range(REPLAYS):
            watch = Stopwatch()
            with watch.around(self._stream):
                to, from_ = self._memory.address + COPY_BYTES, self._memory.address
                check("cuMemcpyDtoDAsync", cu.cuMemcpyDtoDAsync(to, from_, COPY_BYTES, self._stream.handle))
            watch.wait()
            taken.append(watch.us)
        return 2 * COPY_BYTES / statistics.median(taken) / 1e6

    def median_us(self, problem: Gemm, ring: int, ahead: int, *, early: bool) -> float:
        """Microseconds of one launch that reads `problem.min_bytes`."""
        pieces = -(-problem.min_bytes // PIECE_BYTES)
        read_bytes = pieces * PIECE_BYTES
        launch = Launch(self._function, 32, ring * PIECE_BYTES, pdl=early)
        launch.set_grid(self.facts.sm_count)
        places = min(cold_copies(read_bytes, self.facts.l2_bytes), COPY_BYTES // read_bytes)
        copies = [Copy(0, self._memory.address + place * read_bytes, 0) for place in range(places)]
        numbers = (ctypes.c_int(pieces), ctypes.c_int(ring), ctypes.c_int(ahead))
        packed = {copy: Arguments(ctypes.c_void_p(copy.b), *numbers) for copy in copies}
        timed = TimedGraph(lambda copy: launch(self._recorder, packed[copy]), copies, problem.min_bytes / 4e6,
                           self._recorder)  # fmt: skip
        timed.heat_up(self._stream)
        timed.start(self._stream, REPLAYS)
        median = statistics.median(timed.samples_us())
        timed.destroy()
        return median


def rows(reader: Reader, problem: Gemm, copy_tbs: float) -> Iterator[str]:
    """One row per way to launch it."""
    for ring in RINGS:
        for early, ahead in ((False, 0), *((True, ahead) for ahead in AHEAD)):
            taken_us = reader.median_us(problem, ring, ahead, early=early)
            tbs = problem.min_bytes / taken_us / 1e6
            yield (
                f"| {problem.dtype} {problem.shape} | {problem.min_bytes / 1e6:.1f} | {ring * PIECE_BYTES >> 10} | "
                f"{'yes' if early else 'no'} | {ahead} | {taken_us:.2f} | {tbs:.2f} | {tbs / copy_tbs:.0%} |"
            )


def main() -> None:
    """Prints one row per problem and way to launch."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=PROBLEMS)
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    add_out(options)
    given = options.parse_args()
    reader = Reader(given.device)
    copy_tbs = reader.copy_tbs()
    about = (f"{reader.facts.name}, driver {reader.driver}, NVRTC {nvrtc_version()}; copy rate {copy_tbs:.2f} TB/s, "
             f"medians of {REPLAYS} replays.")  # fmt: skip
    lines = ["| problem | MB | ring, KiB | early | ahead | µs | TB/s | of the copy rate |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    print(about, *lines, sep="\n", flush=True)
    for problem in map(problem_of, given.problems):
        for row in rows(reader, problem, copy_tbs):
            lines.append(row)
            print(row, flush=True)
    publish("read_only", given.out, about, "\n".join(lines))


if __name__ == "__main__":
    main()
