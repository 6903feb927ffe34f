"""Compares our times with an independent clock: kernel durations recorded by CUPTI, plus the cost of a launch.

python -m benchmarks.agreement 4096x4096x4096 1024x1024x1024 --out benchmarks/results/agreement_h200.md

This process owns the GPU itself. For each config the same CUDA graph is replayed alone, as `gemmtune` times it, and
under CUPTI, which stamps the begin and end of every kernel on the GPU (through torch.profiler, the only part that
needs PyTorch). What a launch costs in a graph is taken the same way from a kernel that does almost nothing: its time
in a graph, less its duration.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.command import as_command, gpu_of_torch, needing_torch
from benchmarks.published import add_out, publish
from space.enumerate import enumerate_space
from space.family import family_for
from space.kinds.gemm import Gemm
from space.rank import rank
from tuner.studying.candidates import spread
from workers.build import Build, compile_source
from workers.builder import Builder
from workers.cuda.bench import Bench, Ready
from workers.cuda.driver import Arguments, Launch, Module, Stream
from workers.cuda.timing import TimedGraph

HEADER: Final = (
    "| problem | config | ours, µs | CUPTI, µs | with a launch, µs | difference | within 2 % |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
#: Promised agreement.
WITHIN: Final = 0.02
TURNS: Final = 5
#: Launches of the empty kernel.
_EMPTY: Final = 400


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("shapes", nargs="*", default=["4096x4096x4096", "1024x1024x1024"])
    options.add_argument("--dtype", default="bf16")
    options.add_argument("--configs", type=int, default=10, help="configs per shape, besides cuBLASLt's first choice")
    add_out(options)
    given = options.parse_args()
    with needing_torch():
        import torch
        from torch import profiler
    gpu_of_torch()
    torch.cuda.init()
    lines = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        bench, builder = Bench(0, Path(folder)), Builder(Path(folder))
        launch_us = launch_cost_us(bench, Path(folder), profiler)
        about = f"{bench.facts.name}, driver {bench.facts.driver}; a launch costs {launch_us:.2f} µs in a graph."
        print(f"{about}\n{HEADER}", flush=True)
        for shape in given.shapes:
            problem = Gemm.parse(shape, given.dtype)
            for line in rows(bench, builder, problem, given.configs, launch_us, profiler):
                lines.append(line)
                print(line, flush=True)
                # An interrupted run keeps its results.
                publish("agreement", given.out, about, "\n".join(lines))
        builder.close()


def rows(
    bench: Bench, builder: Builder, problem: Gemm, count: int, launch_us: float, profiler: Any  # noqa: ANN401
) -> Iterator[str]:  # fmt: skip
    """One line per config."""
    bench.prepare(problem, seed=1)
    for ready in candidates(bench, builder, problem, count):
        verdict = bench.verify(ready)
        if verdict.reason:
            yield f"| {problem.shape} | `{ready.config.knobs_text}` | {verdict.reason} | – | – | – | – |"
            continue
        ours, theirs = both(bench.stream, ready.timed, profiler)
        ready.discard()
        expected = theirs + launch_us
        off = ours / expected - 1
        yield (
            f"| {problem.dtype} {problem.shape} | `{ready.config.key}` | {ours:.2f} | {theirs:.2f} | {expected:.2f} | "
            f"{off:+.2%} | {'yes' if abs(off) <= WITHIN else 'NO'} |"
        )


def candidates(bench: Bench, builder: Builder, problem: Gemm, count: int) -> Iterator[Ready]:
    """Ranked configs spread over the space, and the library's first choice.

    Configs with `pdl` are left out: a kernel that starts early waits, and its duration includes that.
    """
    family = family_for(bench.facts.arch)
    ranked = rank(enumerate_space(family, problem, bench.facts.profile), bench.facts.profile).configs()
    configs = spread(list(dict.fromkeys(family.config(config.knobs | {"pdl": 0}) for config in ranked)), count)
    for config, build in builder.builds(problem, configs):
        if isinstance(build, Build):
            yield bench.ready(config, build.digest)
    if bench.baselines:
        yield bench.ready(bench.baselines[0], "")


def both(stream: Stream, timed: TimedGraph, profiler: Any) -> tuple[float, float]:  # noqa: ANN401
    """Median time of one launch by our clock and by CUPTI's, measured alternately.

    Only the last replays count, after the clock has settled: starting CUPTI leaves the GPU idle, and an idle GPU then
    runs faster for a while.
    """
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(timed.heat_up(stream)[-1])
        theirs.append(recorded_us(lambda: len(timed.heat_up(stream)), profiler) / timed.launches)
    return statistics.median(ours), statistics.median(theirs)


def recorded_us(run: Callable[[], int], profiler: Any) -> float:  # noqa: ANN401
    """Kernel durations in microseconds, as CUPTI recorded them for the last replay of `run`."""
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
        replays = run()
    kernels = [event for event in profile.profiler.kineto_results.events()
               if "CUDA" in str(event.device_type()) and event.duration_ns() > 0]  # fmt: skip
    kernels.sort(key=lambda event: event.start_ns())
    return float(sum(event.duration_ns() for event in kernels[-(len(kernels) // replays) :])) / 1e3


def launch_cost_us(bench: Bench, cache: Path, profiler: Any) -> float:  # noqa: ANN401
    """Time that a launch adds to its kernel inside a graph; a negative value is noise of the clocks."""
    build = compile_source('extern "C" __global__ void nothing() {}', bench.facts.arch, cache)
    assert isinstance(build, Build)
    launch, recorder, places = Launch(Module(build.cubin).function("nothing"), 32), Stream(), cast(Any, range(_EMPTY))
    empty = TimedGraph(lambda _: launch(recorder, Arguments()), places, 1.0, recorder)
    ours, theirs = both(bench.stream, empty, profiler)
    empty.destroy()
    return max(ours - theirs, 0.0)


if __name__ == "__main__":
    as_command(main)
