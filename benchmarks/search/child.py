"""A process for runs: reads units as JSON lines from stdin and writes the end of each run as a JSON line to stdout.

`benchmarks.search.runs` starts it; a package that crashes its process costs one run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import optuna

from benchmarks.search.replay import read_replays
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import STRATEGIES
from space.family import family_named

#: A strategy, the place of its problem among the recordings, a seed.
Run = tuple[str, int, int]

#: Settings that keep libraries from starting a thread per processor in every process.
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")


@dataclass(frozen=True)
class Plan:
    """Inputs that every process loads for itself.

    Attributes:
        recordings: folders whose problems are searched.
        teachers: folders whose problems only teach.
        most: measurements of a run.
    """

    recordings: tuple[str, ...]
    teachers: tuple[str, ...]
    family: str
    model_seeds: int
    trees: int
    most: int

    def setting(self) -> Setting:
        """All recordings, the teachers behind the others."""
        family = family_named(self.family)
        searched, teachers = (read_replays(map(Path, each), family) for each in (self.recordings, self.teachers))
        return Setting([*searched, *teachers], family, self.model_seeds, self.trees, len(teachers))


@dataclass(frozen=True)
class End:
    """End of a run: its order, or the reason why there is none."""

    order: list[int]
    seconds: float
    failure: str = ""


class Child:
    """Parent's side of the process; starts it at its first use, and again after its death.

    Attributes:
        closed: if true, the process is not restarted.
    """

    def __init__(self, plan: Plan) -> None:
        self.closed = False
        self._plan = plan
        self._process: subprocess.Popen[str] | None = None

    def done(self, unit: Sequence[Run]) -> Iterator[End]:
        """The end of each run, in order; fewer if the process is closed meanwhile."""
        left = list(unit)
        while left and not self.closed:
            process = self.alive()
            assert process.stdin is not None
            assert process.stdout is not None
            started = time.perf_counter()
            # A dead process gives an empty line.
            with suppress(OSError):
                process.stdin.write(json.dumps(left) + "\n")
                process.stdin.flush()
            for _ in tuple(left):
                if not (line := process.stdout.readline()):
                    break
                left.pop(0)
                yield End(**json.loads(line))
            if left and not self.closed:
                left.pop(0)
                status = process.wait()
                self._end()
                yield End([], time.perf_counter() - started, f"its process ended with status {status}")

    def close(self) -> None:
        """Kills the process."""
        self.closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):
                process.communicate()

    def alive(self) -> subprocess.Popen[str]:
        """The process, started if necessary."""
        if self._process is None:
            command = ["env", *(f"{name}=1" for name in _ONE_THREAD), sys.executable, "-m", "benchmarks.search.child"]
            self._process = subprocess.Popen(
                [*command, json.dumps(asdict(self._plan))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process


def quiet() -> None:
    """Silences warnings of other packages: experimental samplers, optimizers that have not converged."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")


def end_of(run: Run, setting: Setting, most: int) -> End:
    """Does a run here."""
    name, place, seed = run
    started = time.perf_counter()
    try:
        order = STRATEGIES[name](setting.replays[place], setting, seed, most)
    # A rival's package may fail in any way; the other runs continue.
    except Exception as error:
        return End([], time.perf_counter() - started, f"{type(error).__name__}: {error}")
    return End(order, time.perf_counter() - started)


def main() -> None:
    """Until stdin ends."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("plan", type=json.loads, help="a `Plan` as JSON")
    plan = Plan(**options.parse_args().plan)
    quiet()
    # Output of packages must not mix with the protocol's lines.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        setting = plan.setting()
        for line in sys.stdin:
            for run in json.loads(line):
                answers.write(json.dumps(asdict(end_of(run, setting, plan.most))) + "\n")
                answers.flush()
            setting.forget()


if __name__ == "__main__":
    main()
