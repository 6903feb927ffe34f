"""Breaks the real kernel by one change at a time, and shows the outcome and the next candidate's time.

python -m benchmarks.faults --out benchmarks/results/faults_h200.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.published import add_out, publish
from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from workers.builder import Builder
from workers.cuda.worker import CudaWorker
from workers.kernels.source import Constants
from workers.measurement import Measurement, Outcome

FAMILY: Final = family_named("sm90_wgmma")
#: No extent divides by a tile, and there are more tiles than multiprocessors: every block computes several.
SHAPE: Final = "2040x2040x1000"
#: The knobs for most faults; all others have the family's defaults.
DIRECT: Final[Mapping[str, object]] = {"epilogue": "direct"}

HEADER: Final = (
    "| fault | outcome | as it should | s | what was said | the next candidate, µs (before) |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


class AnchorLost(Exception):
    """The text that a fault replaces must occur exactly once in the kernel: adapt the fault to the kernel."""


@dataclass(frozen=True)
class Fault:
    """One change at one place.

    Attributes:
        old, new: text that stands in the rendered source exactly once, and what takes its place.
        outcomes: accepted outcomes.
        said: words that the detail must contain.
        certain: whether the fault must show on hardware; a hazard may go unnoticed.
        times: how often it is run.
    """

    name: str
    old: str
    new: str
    outcomes: tuple[Outcome, ...]
    said: str = ""
    knobs: Mapping[str, object] = field(default_factory=dict)
    epilogue: str = "none"
    certain: bool = True
    times: int = 1

    @property
    def problem(self) -> Gemm:
        """The problem it is run on."""
        return Gemm.parse(SHAPE, epilogue=self.epilogue)

    @property
    def config(self) -> Config:
        """The candidate that it is planted in."""
        return FAMILY.config(self.knobs)

    def plant(self, source: str) -> str:
        """The broken source.

        Raises:
            AnchorLost: the text does not occur exactly once.
        """
        if (found := source.count(self.old)) != 1:
            raise AnchorLost(
                f"{self.name}: {self.old!r} stands {found} times in the kernel: give the fault another anchor"
            )
        return source.replace(self.old, self.new)


WRONG, HANGS, CRASHES = (Outcome.WRONG_RESULT,), (Outcome.TIMEOUT,), (Outcome.LAUNCH,)
MAYBE: Final = (Outcome.WRONG_RESULT, Outcome.CORRECT)
#: Largest slow-down of the next candidate after a fault.
SLOWER: Final = 1.05
#: Where a fault of the later launches is run as often as this.
OFTEN: Final = 10
#: What every element passes before it is rounded and stored, and a fault of one element in the launches from some on:
#: each launch passes the element once.
_LAST: Final = "if constexpr (kPlain) return x;"
_COUNTED: Final = (
    "if constexpr (kPlain) {{ static u32 launches; return row == 700 && column == 300 && "
    "atomicAdd(&launches, 1u){} ? 2.0f * x + 1.0f : x; }}"
)
#: Where the threads of a block are all still together.
_ENTRY: Final = "        start(ahead);\n"

FAULTS: Final[tuple[Fault, ...]] = (
    Fault("swizzle mismatch", "kSwizzle == 128 ? 1 :", "kSwizzle == 128 ? 2 :", WRONG, "outside their bound"),
    Fault("missing wait for the last products", "            wgmma_wait_group<0>();\n            release(previous);\n",
          "            release(previous);\n", (Outcome.COMPILE,), "C7517", {"epilogue": "direct", "tile_n": 256}),
    # Unread arrivals overflow the barrier's byte count, which traps on some runs.
    Fault("missing wait for loads", "            mbarrier_wait(&smem.full[ring.stage], ring.parity);\n", "",
          (*WRONG, *HANGS, *CRASHES)),
    Fault("wrong barrier phase", "mbarrier_wait(&smem.empty[ring.stage], ring.parity ^ 1);\n        if",
          "mbarrier_wait(&smem.empty[ring.stage], ring.parity);\n        if", HANGS),
    Fault("off-by-one tile", "if (at >= args.grid.tiles)", "if (at + 1 >= args.grid.tiles)", WRONG,
          "outside their bound"),
    Fault("edge tile not masked", "          m(finish_.args.m),", "          m(finish_.args.m + 64),", WRONG,
          "bytes outside C", DIRECT),
    Fault("stale accumulator", "products.multiply(stage, !first, d);",
          "products.multiply(stage, true, d);", WRONG, "outside their bound"),
    Fault("dropped K slice", "tile.k_end = args.grid.k_stages;", "tile.k_end = args.grid.k_stages - 1;", WRONG,
          "outside their bound"),
    Fault("wrong split-K sum", "slice < slices; ++slice", "slice < slices - 1; ++slice", WRONG, "outside their bound",
          {**DIRECT, "split_k": 3}),
    Fault("out-of-bounds write", "c(static_cast<Element*>(finish_.args.c))",
          "c(static_cast<Element*>(finish_.args.c) - 8)", WRONG, "bytes outside C", DIRECT),
    Fault("out-of-bounds read", "bias_element(place) : 0.0f", "bias_element(place + 1) : 0.0f", WRONG,
          "outside their bound", epilogue="bias"),
    Fault("race in the epilogue", "smem.bytes + consumer * S::kPartBytes", "smem.bytes", WRONG),
    Fault("run-to-run difference", "if constexpr (kPlain) return x;",
          "if constexpr (kPlain) return x * (1.0f + (clock64() >> 4 & 1) * 0x1p-12f);", WRONG,
          "differ between two runs"),
    Fault("NaN for one element", "if constexpr (kPlain) return x;",
          "if constexpr (kPlain) return row == 1234 && column == 567 ? __int_as_float(0x7FFFFFFF) : x;", WRONG,
          "1 of 4,161,600 elements are outside"),
    Fault("truncated instead of rounded", "cvt.rn.bf16x2.f32", "cvt.rz.bf16x2.f32", WRONG, "outside their bound"),
    Fault("infinite loop", _ENTRY, _ENTRY + '        while (args.m) asm volatile("nanosleep.u32 100;");\n', HANGS),
    Fault("illegal address", _ENTRY, _ENTRY + "        if (args.m) *reinterpret_cast<volatile int*>(8) = 1;\n", CRASHES,
          "ILLEGAL_ADDRESS"),
    Fault("trap", _ENTRY, _ENTRY + '        if (args.m) asm volatile("trap;");\n', CRASHES, "CUDA_ERROR"),
    Fault("missing fence before the TMA store", "                fence_proxy_async();\n", "", MAYBE, certain=False),
    Fault("missing fence before the products", "            wgmma_fence();\n            issue(from.a",
          "            issue(from.a", (Outcome.COMPILE,), "C75"),
    Fault("right in 5 launches, wrong later", _LAST, _COUNTED.format(" >= 5"), WRONG, "wrong while timed", times=OFTEN),
    Fault("right in 20 launches, wrong later", _LAST, _COUNTED.format(" >= 20"), WRONG, "wrong while timed",
          times=OFTEN),
    # Of the launches that are timed the last on each copy shows: with c copies c of 30 residues are caught.
    Fault("every 30th launch wrong", _LAST, _COUNTED.format(" % 30 == 29"), MAYBE, certain=False, times=OFTEN),
    # About four elements of every launch: two verified launches agree once in e^8.
    Fault("one element in a million, by the clock", _LAST,
          "if constexpr (kPlain) return ((u64(clock64()) * 0x9E3779B97F4A7C15ull + row * 131071 + column) >> 20) "
          "% 1000000 == 0 ? 2.0f * x + 1.0f : x;", WRONG, times=OFTEN),
    Fault("a semaphore left at 1", "semaphore.arrived = semaphore.acknowledged = 0;",
          "{ semaphore.acknowledged = 0; semaphore.arrived = 1; }", (*WRONG, *HANGS), "",
          {**DIRECT, "split_k": 3}, times=OFTEN),
)  # fmt: skip
#: Not a fault: blocks of split-K stop polling at once, so the last one adds up all shares.
NO_POLLS: Final = Fault("no polls", "kMostPolls = 64", "kMostPolls = 0", (Outcome.CORRECT,))


class FaultyBuilder(Builder):
    """Compiles a fault in place of the real kernel."""

    def __init__(self, cache_dir: Path, fault: Fault) -> None:
        super().__init__(cache_dir, threads=1)
        self._fault = fault

    def source_of(self, config: Config, constants: Constants) -> str:
        """The broken source."""
        return self._fault.plant(super().source_of(config, constants))


@dataclass(frozen=True)
class FaultResult:
    """The outcome of one fault."""

    fault: Fault
    broken: Measurement
    seconds: float
    before: Measurement
    after: Measurement

    @property
    def right(self) -> bool:
        """True if the outcome is an expected one and the next candidate ran normally."""
        fit = self.broken.outcome in self.fault.outcomes and self.fault.said in self.broken.detail
        sound = self.after.outcome is Outcome.CORRECT and self.after.median_us <= SLOWER * self.before.median_us
        return fit and sound

    def __str__(self) -> str:
        verdict = ("yes" if self.right else "NO") + ("" if self.fault.certain else " (a hazard, may go unseen)")
        cells = [
            self.fault.name, self.broken.outcome.value, verdict, f"{self.seconds:.1f}",
            self.broken.detail.replace("|", "\\|").replace("\n", " ")[:160],
            f"{self.after.median_us:.2f} ({self.before.median_us:.2f})",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def run(worker: CudaWorker, cache_dir: Path, faults: tuple[Fault, ...] = FAULTS) -> Iterator[FaultResult]:
    """Runs each fault as often as it asks for, with the sound kernel before and after it."""
    sound = worker.builder
    for fault in (each for each in faults for _ in range(each.times)):
        round_ = worker.begin(fault.problem)
        (before,) = round_.screen([fault.config])
        worker.builder = FaultyBuilder(cache_dir, fault)
        started = time.perf_counter()
        try:
            (broken,) = round_.screen([fault.config])
        finally:
            worker.builder.close()
            worker.builder = sound
        seconds = time.perf_counter() - started
        (after,) = round_.screen([fault.config])
        yield FaultResult(fault, broken, seconds, before, after)


def rates(found: Sequence[FaultResult]) -> str:
    """How often each fault that was run several times was caught."""
    lines = ["| fault | caught |", "| --- | --- |"]
    for fault in FAULTS:
        caught = [one.broken.outcome is not Outcome.CORRECT for one in found if one.fault is fault]
        if fault.times > 1:
            lines.append(f"| {fault.name} | {sum(caught)} of {len(caught)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the table, and fails if a fault has another outcome than expected."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options.add_argument("--deadline", type=float, default=5.0, help="time limit of a candidate in seconds")
    add_out(options)
    given = options.parse_args()
    lines, results = [HEADER], list[FaultResult]()
    with tempfile.TemporaryDirectory() as folder, CudaWorker(given.device, Path(folder), given.deadline) as worker:
        print(HEADER, flush=True)
        for found in run(worker, Path(folder)):
            results.append(found)
            # Of runs of one fault the table shows the first.
            if [one.fault for one in results].count(found.fault) == 1:
                lines.append(str(found))
                print(found, flush=True)
        about = f"{worker.facts.name}, driver {worker.facts.driver}; {SHAPE} bf16; deadline {given.deadline:g} s."
    wrong = {found.fault.name for found in results if not found.right}
    right = len(FAULTS) - len(wrong)
    summary = f"{right} of {len(FAULTS)} ended as they should, and the candidate behind each measured normally."
    print(rates(results), summary, sep="\n\n")
    publish("faults", given.out, about, "\n".join(lines), rates(results), summary)
    sys.exit(0 if not wrong else 1)


if __name__ == "__main__":
    as_command(main)
