"""Shows where the wall time of a screening and of a tune goes, and what each process does while the GPU is idle.

python -m benchmarks.timeline bf16:512x512x512 --out benchmarks/results/timeline_h200.md

`host` is one thread's time per candidate, `GPU idle` the part of it in which the GPU has no work. The GPU is busy
between the events around its work. Watching costs about 0.5 µs per call.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, positive
from benchmarks.host_log import HostLog, Share, idle_within, shares
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from benchmarks.throughput import build
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying import screening, study
from tuner.studying.candidates import candidates_for, spread
from tuner.studying.guidance import guidance_for
from workers.builder import Builder, Builds
from workers.cuda import round as cuda_round
from workers.cuda.worker import CudaWorker

PROCESS: Final = ("-m", "benchmarks.timeline_process")
#: Smaller rows are left out.
LEAST_MS: Final = 0.005
HEADER: Final = "| process | what | spans | host, ms | GPU idle, ms |\n| --- | --- | --- | --- | --- |"


class Timeline:
    """Logs of both processes, for consecutive stretches of work."""

    def __init__(self, worker: CudaWorker, out: Path) -> None:
        self._worker, self._out = worker, out
        self._log = HostLog()
        for owner, name, label in (
            (CudaWorker, "hear", "wait for an answer"),
            (CudaWorker, "tell", "send a question"),
            (cuda_round.CudaRound, "_screened", "parse an answer"),
            (cuda_round, "legal_among", "check candidates"),
            (Builds, "take", "take a build"),
            (Builder, "submit", "begin a build"),
            (screening.Search, "__init__", "set up: search"),
            (screening.Search, "propose", "propose"),
            (screening.Search, "tell", "tell the search"),
            (screening.Search, "outlook", "conclude: outlook"),
            (study, "candidates_for", "set up: candidates"),
            (study, "bests_of", "conclude: bests"),
            (study, "chance_within", "conclude: chance"),
            (Store, "begin_study", "set up: study"),
            (Store, "winners_near", "set up: winners nearby"),
            (Store, "record", "record in the store"),
            (Store, "record_many", "record in the store"),
        ):
            self._log.watch(owner, name, label)
        self.begin()

    def begin(self) -> None:
        """Clears the logs; no question to the GPU may be pending."""
        self._worker.gpu_busy_seconds()
        self._log.taken()
        self._since = time.monotonic()

    def stretch(self, what: str, candidates: int) -> list[str]:
        """The table since the last call; no question to the GPU may be pending."""
        window = self._since, time.monotonic()
        spans = self._log.taken()
        self._worker.gpu_busy_seconds()
        logged = json.loads(self._out.read_text())
        idle = idle_within(window, logged["busy"])
        seconds = window[1] - window[0]
        busy = 1 - sum(end - begin for begin, end in idle) / seconds
        lines = [
            f"{what}: {candidates} candidates in {seconds:.2f} s, GPU busy {busy:.0%}; "
            f"{1e3 * seconds / candidates:.2f} ms a candidate, of which the GPU is idle "
            f"{1e3 * seconds * (1 - busy) / candidates:.2f}",
            "",
            HEADER,
        ]
        for process, done in (("GPU process", logged["spans"]), ("parent", spans)):
            for label, share in shares(window, done, idle).items():
                lines += _row(process, label, share, candidates)
        self.begin()
        return [*lines, ""]


def _row(process: str, label: str, share: Share, candidates: int) -> Iterator[str]:
    host_ms, idle_ms = 1e3 * share.seconds / candidates, 1e3 * share.idle / candidates
    if host_ms >= LEAST_MS:
        yield f"| {process} | {label} | {share.spans} | {host_ms:.3f} | {idle_ms:.3f} |"


def tables(timeline: Timeline, worker: CudaWorker, problem: Gemm, count: int, folder: Path) -> Iterator[str]:
    """A screening alone, and a tune whose builds are in the cache, until its finals and from there on."""
    candidates = spread(candidates_for(problem, worker), count)
    build(worker, problem, candidates)
    round_ = worker.begin(problem)
    name = f"{problem.dtype} {problem.shape}"
    timeline.begin()
    measured = list(round_.screen(candidates))
    yield from timeline.stretch(f"{name}, screening", len(measured))
    guidance = guidance_for(worker.facts.name, settings().model_dir)
    until_finals = list[str]()

    def watch(progress: study.Progress) -> None:
        if progress.phase == "finals":
            until_finals.extend(timeline.stretch(f"{name}, a tune until its finals", progress.tried))

    with Store.open(database_url(str(folder / f"{problem.dtype}-{problem.shape}.db"))) as store:
        for _ in range(2):
            # The first tune builds its proposals; the second finds them in the cache.
            until_finals.clear()
            timeline.begin()
            report = study.tune(store, worker, problem, study.Budget(count), fresh=True, guidance=guidance, watch=watch)
    yield from until_finals
    yield from timeline.stretch(f"{name}, its finals", report.best.tried)


def main() -> None:
    """Prints the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=["bf16:512x512x512"], help="DTYPE:MxNxK")
    options.add_argument("--candidates", type=positive, default=256)
    options.add_argument("--device", type=int, default=0)
    add_out(options)
    given = options.parse_args()
    lines = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        with CudaWorker(given.device, Path(folder) / "cache", process=(*PROCESS, str(log))) as worker:
            timeline = Timeline(worker, log)
            about = f"{worker.facts.name}, driver {worker.facts.driver}"
            for text in given.problems:
                for line in tables(timeline, worker, problem_of(text), given.candidates, Path(folder)):
                    lines.append(line)
                    print(line, flush=True)
                # An interrupted run keeps its results.
                publish("timeline", given.out, about, "\n".join(lines))


if __name__ == "__main__":
    as_command(main)
