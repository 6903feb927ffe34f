"""Measures much of what needs a GPU within a time limit, as one command.

python -m benchmarks.gpu_results --minutes 20

Steps run in parallel, one per GPU; steps that need every GPU come last. A step that does not fit into the remaining
time is reported and skipped; a step that exceeds it is killed. Each writes its table under --out and its output to
the logs. What needs longer, torch or a store has its own command, such as `benchmarks.speed`, `benchmarks.deployed`,
`benchmarks.model`, `benchmarks.mma_ceiling` and `gemmtune record`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command
from benchmarks.facts import gpu_names
from benchmarks.waiting import say

#: Lines of a failed step's output to show.
TAIL: Final = 15


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: name of its log, and of --only.
        words: arguments of `python -m`.
        seconds: generous time on an H200 with an empty build cache.
        table: file under --out that it writes, before `_h200.md` or another model's.
        every_gpu: whether it uses all GPUs of the host.
    """

    name: str
    words: tuple[str, ...]
    seconds: int
    table: str = ""
    every_gpu: bool = False


STEPS: Final = (
    Step("tests", ("pytest", "-q", "-m", "gpu", "tests/gpu"), 200),
    Step("launch", ("benchmarks.launch_space", "--samples", "500", "--seed", "1"), 150, "launch_space"),
    Step("launch_gemv", ("benchmarks.launch_space", "--family", "gemv", "--samples", "300", "--seed", "1"), 60,
         "launch_space_gemv"),
    Step("sustained_order", ("benchmarks.sustained_order",), 700, "sustained_order"),
    Step("faults", ("benchmarks.faults",), 45, "faults"),
    Step("agreement", ("benchmarks.agreement",), 120, "agreement"),
    Step("throughput", ("benchmarks.throughput",), 150, "throughput"),
    Step("timeline", ("benchmarks.timeline", "bf16:512x512x512", "bf16:1024x1024x1024"), 90, "timeline"),
    Step("torch", ("benchmarks.torch_overhead",), 60, "torch_overhead"),
    Step("kill_worker", ("benchmarks.kill_worker", "4096x4096x4096"), 180, "kill_worker"),
    Step("repeatability", ("benchmarks.repeatability",), 250, "repeatability"),
    Step("tuned_twice", ("benchmarks.tuned_twice",), 1_000, "tuned_twice"),
    Step("fleet", ("benchmarks.fleet",), 300, "fleet", every_gpu=True),
)  # fmt: skip


class Run:
    """The remaining steps and their deadline."""

    def __init__(self, steps: Sequence[Step], out: Path, logs: Path, seconds: float) -> None:
        self._left = deque(steps)
        self._out, self._logs = out, logs
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.failed: list[str] = []

    def work(self, gpu: str, model: str) -> None:
        """Runs steps one after another on the GPUs that CUDA_VISIBLE_DEVICES names."""
        while (step := self._next()) is not None:
            self._run(step, gpu, model)

    def _next(self) -> Step | None:
        with self._lock:
            while self._left:
                step = self._left.popleft()
                if step.seconds <= self._time_left():
                    return step
                self._end(step, f"left out: it takes {step.seconds} s, {self._time_left():.0f} s are left")
        return None

    def _run(self, step: Step, gpu: str, model: str) -> None:
        table = ("--out", str(self._out / f"{step.table}_{model}.md")) if step.table else ()
        command = ("env", f"CUDA_VISIBLE_DEVICES={gpu}", sys.executable, "-m", *step.words, *table)
        log, started = self._logs / f"{step.name}.log", time.monotonic()
        say(f"{step.name} begins on GPU {gpu}")
        with log.open("w") as stream:
            try:
                code = subprocess.run(
                    command, stdout=stream, stderr=subprocess.STDOUT, timeout=max(self._time_left(), 1), check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        seconds = time.monotonic() - started
        if code == 0:
            say(f"{step.name} done in {seconds:.0f} s")
            return
        said = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
        how = "ended by the time limit" if code is None else f"exit code {code}"
        self._end(step, f"{how} after {seconds:.0f} s\n{said}")

    def _end(self, step: Step, why: str) -> None:
        self.failed.append(step.name)
        say(f"{step.name} {why}")

    def _time_left(self) -> float:
        return self._ends - time.monotonic()


def model_of(name: str) -> str:
    """A GPU's model as files name it: `h100` of NVIDIA H100 80GB HBM3."""
    words = name.lower().replace("-", " ").split()
    return next((word for word in words if any(map(str.isdigit, word))), words[-1])


def main() -> int:
    """Runs the steps; returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", nargs="*", choices=[step.name for step in STEPS], metavar="STEP")
    parser.add_argument("--gpus", type=int, nargs="+", metavar="ORDINAL", help="default: every GPU of the driver's")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--logs", type=Path, default=Path("benchmarks/logs"))
    given = parser.parse_args()
    names = [*gpu_names()]
    if not names:
        parser.error("the driver shows no GPU: these numbers need one")
    chosen: list[int] = given.gpus or [*range(len(names))]
    if wrong := [gpu for gpu in chosen if not 0 <= gpu < len(names)]:
        parser.error(f"--gpus {wrong[0]}: the driver shows {len(names)}, from 0 on")
    gpus, models = [*map(str, chosen)], [model_of(names[gpu]) for gpu in chosen]
    given.out.mkdir(parents=True, exist_ok=True)
    given.logs.mkdir(parents=True, exist_ok=True)
    wanted = [step for step in STEPS if not given.only or step.name in given.only]
    ends = time.monotonic() + 60 * given.minutes
    side_by_side = Run([step for step in wanted if not step.every_gpu], given.out, given.logs, 60 * given.minutes)
    threads = [threading.Thread(target=side_by_side.work, args=pair) for pair in zip(gpus, models, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = Run([step for step in wanted if step.every_gpu], given.out, given.logs, ends - time.monotonic())
    together.work(",".join(gpus), models[0])
    failed = side_by_side.failed + together.failed
    say(f"{len(wanted) - len(failed)} of {len(wanted)} steps done" + (f", not {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    as_command(main)
