"""`gemmtune record`: measurements of a real GPU as Parquet, for machines without one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.cli.options import Db, Device, Json, open_store
from tuner.cli.output import console, emit, notes
from tuner.cli.tune import say_device
from tuner.errors import NothingCorrect
from tuner.settings import settings
from tuner.studying import recorder
from tuner.studying.open_worker import open_worker
from workers.measurement import Measurement
from workers.recording import file_name

_LINE_EVERY = 50
_PART: Final = re.compile("([0-9]{1,9})/([0-9]{1,9})")
Listed = TypeVar("Listed")


def record(
    problems: Annotated[Path, typer.Argument(help="JSON list of problems: name, m, n, k, layout, dtype.")],
    out: Annotated[Path, typer.Option(help="Folder of the device's recordings.")],
    only: Annotated[list[str] | None, typer.Option(help="Names to record; repeat for several. [default: all]")] = None,
    part: Annotated[str, typer.Option(help="Every Nth problem, from the Ith on, as I/N: one process a GPU.")] = "1/1",
    device: Device = "cuda:0",
    candidates: Annotated[int, typer.Option(help="Most candidates a problem.", min=1)] = 800,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds of the finals.")] = 30,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Measures many candidates of each problem and writes one Parquet file a problem.

    Resumes where it was stopped; a recording that is there already is left alone. A problem of which nothing is
    correct is told at the end, and does not stop the others.
    """
    named = part_of(read_problems(problems, only), part)
    summary: list[dict[str, Any]] = []
    failed: list[str] = []
    with open_store(db) as store, open_worker(device, settings()) as worker:
        say_device(worker.facts)
        for name, problem in named:
            if (out / file_name(problem)).exists():
                notes.print(f"{name}: recorded already, left alone")
                continue
            try:
                result = recorder.record(store, worker, problem, out, candidates, rounds, _watch(name, problem))
            except NothingCorrect as error:
                failed.append(f"{name}: {error}")
                notes.print(failed[-1], markup=False)
                continue
            line = {"name": name, "file": str(result.path), "screened": result.screened, "correct": result.correct}
            summary.append(line)
            notes.print(f"{name}: {result.screened} candidates, {result.correct} correct, {result.path}", markup=False)
    if as_json:
        emit({"recorded": summary, "failed": failed})
    else:
        console.print(f"{len(summary)} problems recorded in {out}")
    if failed:
        raise NothingCorrect(f"{len(failed)} of {len(named)} problems were not recorded: {'; '.join(failed)}")


def part_of(listed: Sequence[Listed], part: str) -> list[Listed]:
    """Every Nth of a list from the Ith on, `I/N`: parts are of like length and together the whole.

    Raises:
        ProblemError: no such part.
    """
    found = _PART.fullmatch(part)
    place, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= place <= count:
        raise ProblemError(f"part = {part!r} is none: give I/N with 1 ≤ I ≤ N, as 2/4")
    return list(listed[place - 1 :: count])


def read_problems(path: Path, only: list[str] | None = None) -> list[tuple[str, Problem]]:
    """Named problems of a JSON list.

    Raises:
        ProblemError: not readable, not a list of problems, or a name in `only` that it lacks.
    """
    try:
        entries = json.loads(path.read_text())
        named = [(str(entry["name"]), _problem(entry)) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(
            f"{path} is no list of problems ({error}): give a JSON list with name, m, n, k, layout, dtype "
            f"(batch and epilogue may stand beside)"
        ) from error
    if missing := set(only or ()) - {name for name, _ in named}:
        raise ProblemError(f"{', '.join(sorted(missing))}: no such problem in {path}")
    return [(name, problem) for name, problem in named if not only or name in only]


def _problem(entry: dict[str, Any]) -> Problem:
    extents = entry["m"], entry["n"], entry["k"]
    batch, epilogue = entry.get("batch", 1), entry.get("epilogue", "none")
    return Gemm.of(*extents, entry["dtype"], entry["layout"], batch, epilogue)


def _watch(name: str, problem: Problem) -> recorder.Watch:
    def line(done: int, total: int, last: Measurement) -> None:
        if done % _LINE_EVERY == 0 or done == total:
            speed = f"{problem.tflops(last.median_us):.0f} TFLOP/s" if last.samples_us else last.outcome.value
            notes.print(f"{name}: {done}/{total}, last {speed}", markup=False)

    return line
