"""Tunes shapes on one device and prints our best beside cuBLASLt, measured in turn in the same run.

python -m benchmarks.tune_shapes 4096x4096x4096 8192x8192x8192 --device cuda:0 --out benchmarks/results/F.md
"""

from __future__ import annotations

import argparse
import tempfile
import time

from benchmarks.facts import recordings
from benchmarks.published import add_out, publish
from benchmarks.speed import provenance
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tuner.evidence.picks import LIBRARY, pick
from tuner.evidence.stats import ratio
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import open_worker
from tuner.studying.study import Budget, Report, tune
from workers.measurement import Measurement
from workers.ports import Worker

HEADER = (
    "| problem | µs | TFLOP/s | of roofline | cuBLASLt first µs | ratio (95 %) | cuBLASLt best µs | ratio (95 %) "
    "| elements verified, worst error / bound | tried | s | config |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("shapes", nargs="+")
    options.add_argument("--dtype", default="bf16")
    options.add_argument("--device", default="cuda:0")
    options.add_argument("--candidates", type=int, default=256)
    options.add_argument("--turns", "--rounds", type=int, default=40)
    options.add_argument("--db", help="keep the store in this file")
    add_out(options)
    given = options.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        url = database_url(given.db or f"{folder}/tune.db")
        with Store.open(url) as store, open_worker(given.device, settings()) as worker:
            for shape in given.shapes:
                problem = Gemm.parse(shape, given.dtype)
                started = time.perf_counter()
                budget = Budget(given.candidates, None, given.turns)
                guidance = guidance_for(worker.facts.name, settings().model_dir)
                report = tune(store, worker, problem, budget, guidance=guidance)
                lines.append(row(problem, report, worker, time.perf_counter() - started))
                print(lines[-1], flush=True)
            about = provenance(report, worker.facts.arch)
    text = "\n".join([HEADER, *lines])
    publish("tune_shapes", given.out, about, text, read=recordings(given.device))


def row(problem: Gemm, report: Report, worker: Worker, seconds: float) -> str:
    """One line of the table; the winner is ours, whatever would be served."""
    best, limits = report.best, worker.facts.profile
    finals = [final for final in report.finals if final.policy is report.best.policy]
    library = [final for final in finals if final.config.family == LIBRARY]
    fastest = sorted(library, key=lambda final: final.median_us)
    ours = pick([final for final in finals if final.config.family != LIBRARY], problem, worker.facts.name)
    check = ours.verification
    share = f"{roofline_us(problem, limits) / ours.median_us:.0%}" if limits else "–"
    cells = [
        f"{problem.title}", f"{ours.median_us:.2f}",
        f"{problem.tflops(ours.median_us):.1f}", share,
        _time(library[:1]), _ratio(library[:1], ours), _time(fastest), _ratio(fastest, ours),
        f"{check.elements:,}, {check.worst_ratio:.2f}" if check else "–", str(best.tried), f"{seconds:.1f}",
        f"`{ours.config.key}`",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _time(measured: list[Measurement]) -> str:
    return f"{measured[0].median_us:.2f}" if measured else "–"


def _ratio(library: list[Measurement], ours: Measurement) -> str:
    if not library:
        return "–"
    versus = ratio(library[0].samples_us, ours.samples_us)
    return f"{versus.value:.3f} ({versus.low:.3f}–{versus.high:.3f})"


if __name__ == "__main__":
    main()
