"""What is timed in full, and problems shared among devices, which come back in their order."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from benchmarks.sustained_order import FASTEST, HEADER, in_full, rank_correlation, shared, summary
from tests.support import FAMILY
from tuner.studying.records import Trial
from workers.cuda.outputs import SLOTS
from workers.measurement import Outcome


def line(problem: str, correlation: float) -> str:
    return f"| {problem} | 60 | {correlation:.2f} | 0.10 | 8 | 0.1% | 2.0% |"


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of the benchmark's own process: prints a line for each problem, as that does."""
    program = tmp_path / "child.py"
    program.write_text(
        f"import sys\nprint({HEADER!r})\n"
        "for word in sys.argv[3:sys.argv.index('--devices')]:\n"
        "    if word == 'broken': raise SystemExit(1)\n"
        f"    print({line('{}', 0.5)!r}.format(word))\n"
        "print()\nprint('Median rank correlation: none')\n"
    )
    start = subprocess.Popen

    def started(command: list[str], **settings: object) -> subprocess.Popen[str]:
        return start([sys.executable, str(program), *command[1:]], **settings)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", started)
    return program


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_lines_come_in_the_order_of_the_problems(child: Path, count: int) -> None:
    problems = ["a", "b", "c", "d", "e"][:count]
    assert shared(problems, [0, 1]) == [line(problem, 0.5) for problem in problems]


def test_a_process_that_fails_ends_the_table(child: Path) -> None:
    with pytest.raises(SystemExit, match="a process failed"):
        shared(["a", "broken"], [0, 1])


def test_no_more_are_timed_in_full_than_can_be_told_apart_and_every_finalist_is() -> None:
    tiles = product((64, 128, 192, 256), range(64, 264, 8))
    configs = [FAMILY.config({"tile_m": tile_m, "tile_n": tile_n}) for tile_m, tile_n in tiles]
    found = [(Trial(config, Outcome.CORRECT, float(us)), "") for us, config in enumerate(configs, 1)]
    finalists = {trial.config for trial, _ in found[-10:]}
    chosen = in_full(found, finalists)
    assert len(chosen) == SLOTS
    assert finalists < {trial.config for trial, _ in chosen}
    assert chosen[:FASTEST] == found[:FASTEST]


def test_ranks_are_correlated_not_times() -> None:
    assert rank_correlation([2.0, 1.0, 3.0, 400.0], [40.0, 10.0, 20.0, 30.0]) == pytest.approx(0.4)


def test_the_summary_is_the_median() -> None:
    said = summary([line(name, value) for name, value in (("a", 0.5), ("b", 0.9), ("c", 0.6))])
    assert said == "Median rank correlation: 0.60 with screening, 0.10 with rounds."
