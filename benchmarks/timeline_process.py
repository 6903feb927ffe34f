"""The GPU process with a log of its own work and of the GPU's busy intervals.

Each question for the GPU's busy time writes the activities since the previous question to a log.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.host_log import HostLog, Interval
from workers.cuda import bench, clocks, driver, process, timing, verification
from workers.cuda.families.cublaslt import Matmul
from workers.cuda.families.prepared import PreparedLauncher


class GpuLog:
    """Busy intervals of the GPU, from the product's own stopwatches, on the host's clock."""

    def __init__(self) -> None:
        self.busy: list[Interval] = []
        self._zero: driver.Event | None = None
        self._zero_seconds = 0.0

    def begin(self, stream: driver.Stream) -> None:
        """Relates the stream's clock to the host's; the stream must be idle."""
        stream.synchronize()
        self._zero = driver.Event()
        self._zero.record(stream)
        self._zero.wait()
        self._zero_seconds = time.monotonic()

    def read(self, begin: driver.Event, end: driver.Event) -> float:
        """Microseconds between two events, which are logged."""
        taken_us = begin.until_us(end)
        if self._zero is not None:
            at = self._zero_seconds + self._zero.until_us(begin) / 1e6
            self.busy.append((at, at + taken_us / 1e6))
        return taken_us


def observe(log: HostLog, gpu: GpuLog, out: Path) -> None:
    """Wraps the process's functions and stopwatches."""
    for owner, name, label in (
        (process, "receive", "wait for a question"),
        (process, "send", "send the answer"),
        (process, "_json", "answer as JSON"),
        (bench.Bench, "prepare", "operands and reference"),
        (bench.Bench, "foresee", "foresee"),
        (bench.Bench, "load", "load: the rest"),
        (driver.Module, "__init__", "load: cuLibraryLoadData"),
        (driver.Module, "function", "load: cuKernelGetFunction"),
        (driver.Launch, "__init__", "load: launch configuration"),
        (driver.Launch, "resident", "load: occupancy"),
        (bench.Bench, "record", "record: the rest"),
        (PreparedLauncher, "prepare", "record: arguments"),
        (Matmul, "launch", "record: cublasLtMatmul"),
        (timing.TimedGraph, "__init__", "record: launches into the graph"),
        (driver.Graph, "__init__", "record: cuGraphInstantiate"),
        (driver.Graph, "upload", "record: cuGraphUpload"),
        (driver.Event, "__init__", "events made"),
        (driver.Event, "destroy", "events destroyed"),
        (verification.Verifier, "verify", "verify: launches"),
        (driver.Stream, "synchronize", "verify: wait"),
        (verification.Verifier, "_judge", "verify: verdict"),
        (timing.TimedGraph, "start", "start replays"),
        (driver.Event, "wait", "wait for replays"),
        (timing.TimedGraph, "samples_us", "read samples"),
        (timing.TimedGraph, "destroy", "free: the rest of a graph"),
        (driver.Graph, "destroy", "free: cuGraphExecDestroy"),
        (driver.Module, "unload", "free: cuLibraryUnload"),
        (clocks.Monitor, "read", "NVML: clocks"),
        (clocks.Monitor, "others", "NVML: processes"),
        (timing.StoppingRule, "satisfied", "finals: stopping rule"),
    ):
        log.watch(owner, name, label)
    driver.Stopwatch.us = property(lambda self: gpu.read(self._begin, self._end))  # type: ignore[assignment, method-assign]

    opened, answered = bench.Bench.__init__, process.Dispatcher._answer

    def open_bench(self: bench.Bench, ordinal: int, cache_dir: Path) -> None:
        opened(self, ordinal, cache_dir)
        gpu.begin(self.stream)

    def answer(self: process.Dispatcher, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] == "busy":
            out.write_text(json.dumps({"spans": log.taken(), "busy": gpu.busy}))
            gpu.busy = []
        return answered(self, question)

    bench.Bench.__init__ = open_bench  # type: ignore[method-assign]
    process.Dispatcher._answer = answer  # type: ignore[method-assign]


def main() -> None:
    """As `workers.cuda.process`."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("log", type=Path)
    options.add_argument("ordinal", type=int)
    options.add_argument("cache_dir", type=Path)
    options.add_argument("modules", nargs="*")
    options.add_argument("read_fd", type=int)
    options.add_argument("write_fd", type=int)
    given = options.parse_args()
    log = HostLog()
    gc.callbacks.append(lambda phase, _: log.enter("garbage collection") if phase == "start" else log.leave())
    observe(log, GpuLog(), given.log)
    process.main(given.ordinal, given.cache_dir, given.read_fd, given.write_fd, given.modules)


if __name__ == "__main__":
    main()
