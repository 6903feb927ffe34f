"""Measures how well times repeat: 20 configs in 5 fresh GPU processes, and 10 problems tuned twice.

python -m benchmarks.repeatability --out benchmarks/results/repeatability_h200.md
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from space.config import Config
from space.kinds.gemm import Gemm
from tuner.evidence.picks import LIBRARY, TIE_BAND, paired, verdicts
from tuner.evidence.records import Ratio
from tuner.evidence.stats import ratio
from tuner.evidence.store import Store
from tuner.settings import database_url, settings
from tuner.studying.candidates import candidates_for, spread
from tuner.studying.guidance import guidance_for
from tuner.studying.study import Budget, tune
from workers.cuda.worker import CudaWorker
from workers.measurement import Measurement, Outcome, Policy

#: Problems whose configs are measured in fresh processes.
REPEATED: Final = ("bf16:4096x4096x4096", "bf16:128x28672x4096", "bf16:1024x2880x2880")
TUNED: Final = (
    "bf16:512x512x512", "bf16:4096x4096x4096", "bf16:8192x8192x8192", "bf16:128x28672x4096", "bf16:2048x6144x4096",
    "bf16:4095x4097x4104", "bf16:1024x2880x2880", "bf16:65536x1024x1024", "fp16:32x4096x4096", "bf16:1x8192x3584",
)  # fmt: skip
#: Promise: largest relative difference between a config's medians.
PROMISED: Final = 0.015

_REPEAT_HEADER: Final = (
    "| problem | config | medians, µs | widest | widest beside cuBLASLt | SM MHz |\n"
    "| --- | --- | --- | --- | --- | --- |"
)
_TUNE_HEADER: Final = (
    "| problem | first tune | second tune | same winner | second / first, interleaved (95 %) | inside the tie band |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Prints both tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--configs", type=int, default=20)
    options.add_argument("--processes", type=int, default=5)
    options.add_argument("--candidates", type=int, default=200, help="budget of each tune")
    options.add_argument("--turns", "--rounds", type=int, default=30)
    options.add_argument("--repeated", nargs="*", default=list(REPEATED), help="DTYPE:MxNxK")
    options.add_argument("--tuned", nargs="*", default=list(TUNED), help="DTYPE:MxNxK")
    options.add_argument("--device", type=int, default=0)
    options.add_argument("--cache", type=Path, help="keep builds here")
    add_out(options)
    given = options.parse_args()
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)
        # An interrupted run keeps its results.
        publish("repeatability", given.out, "\n".join(lines))

    with tempfile.TemporaryDirectory() as folder:
        cache = given.cache or Path(folder) / "cache"
        with CudaWorker(given.device, cache) as worker:
            alone = "; ".join(worker.notices) or "alone on the GPU"
            tell(f"{worker.facts.name}, driver {worker.facts.driver}, {alone}.")
        for line in repeated([problem_of(text) for text in given.repeated], given, cache):
            tell(line)
        for line in tuned_twice([problem_of(text) for text in given.tuned], given, cache, Path(folder)):
            tell(line)


def repeated(problems: Sequence[Gemm], given: argparse.Namespace, cache: Path) -> Iterator[str]:
    """The same configs in fresh GPU processes."""
    if not problems:
        return
    yield f"\n{given.configs} configs, interleaved with each other, in {given.processes} fresh processes:\n"
    yield _REPEAT_HEADER
    widths: list[float] = []
    for problem in problems:
        runs = [_fresh(problem, given, cache) for _ in range(given.processes)]
        for config in runs[0]:
            if config.family == LIBRARY or any(config not in run for run in runs):
                continue
            medians = [run[config].median_us for run in runs]
            beside = [run[config].median_us / _library_us(run) for run in runs]
            widths.append(_width(medians))
            mhz = ", ".join(str(clocks.sm_mhz) if (clocks := run[config].clocks) else "–" for run in runs)
            times = ", ".join(f"{us:.2f}" for us in medians)
            yield (
                f"| {problem.dtype} {problem.shape} | `{_short(config)}` | {times} | {_width(medians):.2%} | "
                f"{_width(beside):.2%} | {mhz} |"
            )
    within = sum(width <= PROMISED for width in widths)
    yield (
        f"\n{within} of {len(widths)} configs repeat within {PROMISED:.1%}; the median config within "
        f"{statistics.median(widths):.2%}, the worst within {max(widths):.2%}. "
        f"Widest: (largest − smallest median) / median."
    )


def tuned_twice(problems: Sequence[Gemm], given: argparse.Namespace, cache: Path, folder: Path) -> Iterator[str]:
    """Two whole tunes of each problem, in fresh stores and processes; winners that differ take turns."""
    if not problems:
        return
    yield f"\nTwo tunes of {given.candidates} candidates, each with its own store and GPU process:\n"
    yield _TUNE_HEADER
    agreed = 0
    for place, problem in enumerate(problems):
        winners = [_tuned(problem, given, cache, folder / f"{place}-{number}.db") for number in range(2)]
        first, second = winners
        same = first == second
        versus, tied = "–", same
        if not same:
            found = _compared(problem, first, second, given, cache)
            versus = f"{found.value:.4f} ({found.low:.4f}–{found.high:.4f})"
            tied = abs(found.value - 1) <= TIE_BAND or found.low <= 1 <= found.high
        agreed += tied
        yield (
            f"| {problem.dtype} {problem.shape} | `{_short(first)}` | `{_short(second)}` | {'yes' if same else 'no'} | "
            f"{versus} | {'yes' if tied else 'NO'} |"
        )
    yield f"\n{agreed} of {len(problems)} tunes named the same winner, or one inside the tie band of {TIE_BAND:.0%}."


def _fresh(problem: Gemm, given: argparse.Namespace, cache: Path) -> dict[Config, Measurement]:
    """Finals of the same configs in a GPU process of their own."""
    with CudaWorker(given.device, cache) as worker:
        configs = spread(candidates_for(problem, worker), given.configs)
        finals = worker.begin(problem).finals(configs, given.turns)
    # Under bursts every rival is timed, under other policies the leaders alone.
    bursts = (final for final in finals if final.policy is Policy.BURST)
    return {final.config: final for final in bursts if final.outcome is Outcome.CORRECT}


def _library_us(run: dict[Config, Measurement]) -> float:
    library = [final.median_us for config, final in run.items() if config.family == LIBRARY]
    return library[0] if library else 1.0


def _tuned(problem: Gemm, given: argparse.Namespace, cache: Path, db: Path) -> Config:
    with Store.open(database_url(str(db))) as store, CudaWorker(given.device, cache) as worker:
        guidance = guidance_for(worker.facts.name, settings().model_dir)
        report = tune(store, worker, problem, Budget(given.candidates, None, given.turns), guidance=guidance)
    return report.best.config


def _compared(problem: Gemm, first: Config, second: Config, given: argparse.Namespace, cache: Path) -> Ratio:
    with CudaWorker(given.device, cache) as worker:
        finals = worker.begin(problem).finals([first, second], 2 * given.turns)
        policy = verdicts(problem, worker.facts.name)[0]
    of_policy = [final for final in finals if final.policy is policy]
    one, other = (next(final for final in of_policy if final.config == config) for config in (first, second))
    return ratio(*paired(other, one))


def _width(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def _short(config: Config) -> str:
    """Tile, stages and cluster of a tiled config; the whole config would fill the table."""
    if "tile_m" not in config.knobs:
        return config.key
    words = [f"{config['tile_m']}x{config['tile_n']}x{config['tile_k']}", f"{config['stages']} stages"]
    words.append(f"cluster {config['cluster_m']}x{config['cluster_n']}x{config['cluster_k']}")
    words += [str(config["schedule"]), str(config["epilogue"])]
    words += [f"group {config['raster_group']} {config['raster']}", f"split {config['split_k']}"]
    return ", ".join(words)


if __name__ == "__main__":
    main()
