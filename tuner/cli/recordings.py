"""`gemmtune recordings`: lists recordings, exports them for other tools, and saves a store's studies as recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import orjson
import typer

from space.errors import ConfigError
from tuner.cli.commands import group
from tuner.cli.options import AUTO, Db, DeviceName, Json, existing_store
from tuner.cli.output import console, emit, say
from tuner.counts import counted
from tuner.errors import ExportError
from tuner.files import export_file
from tuner.settings import settings
from tuner.studying.saved import save as save_studies
from tuner.tables.from_recordings import table_of_recordings
from tuner.tables.recorded import FILE
from tuner.tables.tables import table_bytes
from workers import t4
from workers.errors import RecordingError
from workers.measurement import Outcome
from workers.recording import read_outline, read_recording

FORMATS: Final = ("t4", "json")

app = group("Recordings of real GPUs: list them, make them from a store's studies, or export them for other tools.")

Source = Annotated[Path | None, typer.Argument(help="A recording, or a folder of them. \\[default: those that ship]")]


@app.command("list")
def list_(source: Source = None, as_json: Json = False) -> None:
    """Lists recordings: problem, candidates, fastest time, and the software they were taken with."""
    lines = (_about(path) for path in _files(source))
    if as_json:
        emit({"recordings": list(lines)})
        return
    for line in lines:
        console.print(
            f"{line['file']}: {line['problem']} on {line['device']}, {line['screened']} candidates, "
            f"{line['correct']} correct, fastest {line['fastest_us']} µs, kernel source {line['kernel_source']}",
        )  # fmt: skip


@app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    source: Source = None,
    format: Annotated[str, typer.Option("--format", help="t4: T4 1.0.0 results and metadata; json: one table "
                     "of all bests, for `gemmtune best` to answer from.")] = "t4",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Writes each recording in another tool's format, or one table of all bests.

    Keeps t4's files that exist, and replaces the table. Recordings of a folder's folders are written to folders of the
    same names.
    """
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown: use one of {', '.join(FORMATS)}")
    if format == "json":
        _export_table(out, _files(source), as_json)
        return
    written: list[str] = []
    given = _given(source)
    for path in _files(source):
        recording = read_recording(path)
        # Sets have files of the same names.
        folder = out if path == given else out / path.parent.relative_to(given)
        for suffix, document in (("results", t4.results(recording)), ("metadata", t4.metadata(recording))):
            target = folder / f"{path.stem}.{suffix}.json"
            if not target.exists():
                export_file(target, orjson.dumps(document))
                written.append(str(target))
    say(f"{counted(len(written), 'file')} written to {out}", {"written": written}, as_json)


def _export_table(out: Path, paths: Sequence[Path], as_json: bool) -> None:
    """Writes the bests of recordings as one table.

    Raises:
        ExportError: they are of several devices, or two are of one problem.
    """
    recordings = [read_recording(path) for path in paths]
    devices = sorted({recording.facts.name for recording in recordings})
    if len(devices) > 1:
        raise ExportError(f"{', '.join(devices)} were recorded there: name the folder of one of them")
    first = dict[str, Path]()
    for path, recording in zip(paths, recordings, strict=True):
        if (other := first.setdefault(recording.problem.key, path)) != path:
            raise ExportError(f"{other} and {path} are of one problem: name the folder of one of them")
    table = table_of_recordings(recordings, devices[0])
    export_file(out / FILE, table_bytes(table))
    held, left_out = len(table["entries"]), len(recordings) - len(table["entries"])
    line = f"{out / FILE} holds the bests of {counted(held, 'recording')}"
    if left_out:
        line += f"; {counted(left_out, 'recording')} without a correct final left out"
    say(line, {"written": [str(out / FILE)], "left_out": left_out}, as_json)


@app.command()
def save(
    out: Annotated[Path, typer.Argument(help="Output folder.")],
    device: DeviceName = AUTO,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Saves a store's measurements of one GPU model as recordings, one per problem. Keeps files that exist."""
    with existing_store(db) as store:
        written = save_studies(store, device, out)
    say(f"{counted(len(written), 'recording')} written to {out}", {"written": [str(path) for path in written]}, as_json)


def _given(source: Path | None) -> Path:
    return source or settings().recorded_dir


def _files(source: Path | None) -> list[Path]:
    given = _given(source)
    files = [given] if given.is_file() else sorted(given.glob("**/*.parquet"))
    if not files:
        found = "contains no recording" if given.exists() else "is not there"
        raise RecordingError(f"{given} {found}: give a .parquet file, or a folder with some")
    return files


def _about(path: Path) -> dict[str, Any]:
    recording = read_outline(path, ("stage", "outcome", "samples_us", "provenance"))
    screened = [row for row in recording.rows if row["stage"] == "screen"]
    times = [row["samples_us"] for row in screened if row["outcome"] == Outcome.CORRECT]
    if not recording.rows:
        raise RecordingError(f"{path} holds no measurement: fetch it again or record again")
    try:
        by = recording.provenances[recording.rows[0]["provenance"]]
        fastest = round(min(map(median, times)), 3) if times else None
    except (IndexError, TypeError, ValueError) as error:
        raise RecordingError(f"{path} holds a row that is not a measurement ({error}): fetch it again") from error
    return {
        "file": str(path),
        "problem": recording.problem.key,
        "device": recording.facts.name,
        "screened": len(screened),
        "correct": len(times),
        "fastest_us": fastest,
        "kernel_source": by.kernel_source_digest[:12],
        "driver": by.driver,
        "nvrtc": by.nvrtc,
    }
