"""`gemmtune record`: records measurements of a real GPU as Parquet, to replay on machines without one."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from space.errors import ProblemError
from space.problem import Problem
from tuner.cli.options import Db, Json, open_store
from tuner.cli.output import notes, say
from tuner.cli.tune import say_device
from tuner.counts import counted
from tuner.errors import DeviceError, NothingCorrect
from tuner.exits import EXIT_NOTHING
from tuner.files import whole_file
from tuner.settings import settings
from tuner.studying import recorder
from tuner.studying.guidance import guidance_for
from tuner.studying.open_worker import driver_present, open_worker
from tuner.tables.importers.source import Source
from tuner.tables.problems import from_fields
from workers.errors import DriverError, RecordingError, RecordingExists, make_room_or
from workers.measurement import Measurement
from workers.recording import check_folder, check_writable, file_name, read_recording

_LINE_EVERY = 50
_MOST_CHARACTERS: Final = 64 << 20
_MOST_NAMES: Final = 20
_SHOWN: Final = '{"name": "square", "m": 4096, "n": 4096, "k": 4096}'
_PART: Final = re.compile("([0-9]{1,9})/([0-9]{1,9})")
Listed = TypeVar("Listed")


def record(
    problems: Annotated[Path, typer.Argument(help="JSON list of problems: name, m, n, k, layout, dtype.")],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    only: Annotated[list[str] | None, typer.Option(help="Problem to record; repeatable. \\[default: all]")] = None,
    part: Annotated[str, typer.Option(help="I/N: every Nth problem from the Ith on, for one process per GPU.")] = "1/1",
    device: Annotated[str, typer.Option(help="auto or cuda:0: what is replayed can't be recorded.")] = "cuda:0",
    candidates: Annotated[int, typer.Option(help="Most candidates per problem.", min=1)] = 800,
    turns: Annotated[int, typer.Option(help="Fewest turns where `chain` decides; 0: no finals.", min=0)] = 30,
    share: Annotated[Path | None, typer.Option(help="Zip file of all recordings in OUT, to send in.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Measures many candidates of each problem and writes one Parquet file per problem.

    Resumes where it stopped, and keeps recordings that exist. A problem without any correct candidate, or that needs
    more memory than the GPU has, is reported at the end and does not stop the others.
    """
    named = part_of(read_problems(problems, only), part)
    summary: list[dict[str, Any]] = []
    failed: list[str] = []
    if (device == "auto" or device.startswith("cuda:")) and not driver_present():
        # To replay instead, as other commands may, would record nothing.
        raise DeviceError("record measures a GPU, and no NVIDIA driver answers here (libcuda.so.1 with a GPU): run it "
                          "on the machine of the card")  # fmt: skip
    with ExitStack() as opened:
        worker = opened.enter_context(open_worker(device, settings()))
        if worker.facts.kind == "recorded":
            raise RecordingError(f"--device {device} replays a recording, and only a GPU can be recorded: use cuda:0")
        store = opened.enter_context(open_store(db))
        say_device(worker.facts)
        # What fails at the end would fail after hours of the GPU's time.
        check_folder(out, worker.facts.name)
        check_writable(out)
        if share is not None:
            _check_free(share)
        model = guidance_for(worker.facts.name, settings().model_dir).model
        for name, problem in named:
            if (out / file_name(problem)).exists():
                notes.print(f"{name}: already recorded")
                continue
            try:
                result = recorder.record(store, worker, problem, out, candidates, turns, _watch(name, problem), model)
            except RecordingExists:
                notes.print(f"{name}: another process has recorded it meanwhile")
                continue
            except (NothingCorrect, DriverError) as error:
                failed.append(f"{name}: {error}")
                notes.print(failed[-1])
                continue
            line = {"name": name, "file": str(result.path), "screened": result.screened, "correct": result.correct}
            summary.append(line)
            notes.print(f"{name}: {result.screened} candidates, {result.correct} correct, {result.path}")
    # As JSON, a failure of it is the one document.
    if share is not None:
        notes.print(f"{shared(out, share)} recordings to send in: {share}")
    say(f"{counted(len(summary), 'problem')} recorded in {out}", {"recorded": summary, "failed": failed}, as_json)
    if failed:
        notes.print(f"{len(failed)} of {len(named)} problems were not recorded: {'; '.join(failed)}")
        raise typer.Exit(EXIT_NOTHING)


def shared(folder: Path, archive: Path) -> int:
    """Writes every recording of a folder into a zip file and returns their number.

    Raises:
        RecordingError: the folder has none, a file is damaged, they are of several devices, or the archive exists, or
            can't be written.
    """
    paths = sorted(folder.glob("*.parquet"))
    devices = sorted({read_recording(path).facts.name for path in paths})
    if len(devices) != 1:
        raise RecordingError(
            f"{folder} has recordings of {', '.join(devices) or 'no device'}: give a folder with those of one card"
        )
    try:
        with whole_file(archive, replace=False) as file, zipfile.ZipFile(file, "w") as made:
            for path in paths:
                made.write(path, f"{devices[0]}/{path.name}")
    except FileExistsError as error:
        raise _taken(error.filename) from error
    except OSError as error:
        why = f"{archive} can't be written ({error.strerror})"
        raise RecordingError(f"{why}: {make_room_or('name another file', error)}") from error
    return len(paths)


def _check_free(archive: Path) -> None:
    """Refuses an archive that exists.

    Raises:
        RecordingError: it does.
    """
    if os.path.lexists(archive):
        raise _taken(archive)


def _taken(path: Path | str) -> RecordingError:
    return RecordingError(f"{path} exists: remove it, or name another file")


def part_of(listed: Sequence[Listed], part: str) -> list[Listed]:
    """Every Nth item of a list from the Ith on, given as `I/N`; the N parts have similar lengths and cover the list.

    Raises:
        ProblemError: `part` is malformed or out of range.
    """
    found = _PART.fullmatch(part)
    place, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= place <= count:
        raise ProblemError(f"part = {part!r} is not I/N with 1 ≤ I ≤ N: write it like 2/4")
    return list(listed[place - 1 :: count])


def read_problems(path: Path, only: list[str] | None = None) -> list[tuple[str, Problem]]:
    """The named problems in a JSON list.

    Raises:
        ProblemError: the file is unreadable or not a list of problems, or lacks a name in `only`.
    """
    fix = f"give a JSON list of objects, as in [{_SHOWN}]"
    # Commands beside this one take the same problems as CSV.
    entries = Source(path).document(_MOST_CHARACTERS, fix)
    if not (isinstance(entries, list) and entries and all(isinstance(entry, dict) for entry in entries)):
        raise ProblemError(f"{path} is not a list of problems: {fix}")
    for number, entry in enumerate(entries, 1):
        if "name" not in entry:
            raise ProblemError(f"{path}, entry {number} has no name: name each problem, as in {_SHOWN}")
    named = [(str(entry["name"]), from_fields(entry, str(entry["name"]))) for entry in entries]
    if missing := set(only or ()) - {name for name, _ in named}:
        has = ", ".join(name for name, _ in named[:_MOST_NAMES]) + (", …" if len(named) > _MOST_NAMES else "")
        raise ProblemError(f"--only {', '.join(sorted(missing))} is not in {path}: it has {has}")
    return [(name, problem) for name, problem in named if not only or name in only]


def _watch(name: str, problem: Problem) -> recorder.Watch:
    def line(done: int, total: int, last: Measurement) -> None:
        if done % _LINE_EVERY == 0 or done == total:
            speed = f"{problem.tflops(last.median_us):.0f} TFLOP/s" if last.samples_us else last.outcome.value
            notes.print(f"{name}: {done}/{total}, last {speed}")

    return line
