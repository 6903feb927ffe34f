"""`gemmtune export`: a device's bests as a table in one of several formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from space.errors import ConfigError
from tuner.answering.answers import policy_of
from tuner.cli.options import AUTO, Db, DeviceName, Json, existing_store
from tuner.cli.output import say
from tuner.cli.query import Neighbours
from tuner.cli.shape_options import BlockScaledAs, Ms, Tf32, Tp, asked_of, shapes_told
from tuner.files import export_file, export_files, export_folder
from tuner.settings import settings
from tuner.tables.exporters import exporter_named
from tuner.tables.exporters.bundle import with_programs
from tuner.tables.exporters.guard import MIN_GAIN, Guarded, guarded
from tuner.tables.exporters.tunableop import with_rows
from tuner.tables.exporters.wanted import Wanted
from tuner.tables.library import library_table
from tuner.tables.programs import plans_of, programs_of, stale
from tuner.tables.tables import chosen_bests, table, table_bytes


def export(
    out: Annotated[Path, typer.Option(help="File to write; for a bundle, a new folder.")],
    format: Annotated[str, typer.Option("--format", help="json, csv, parquet, tunableop or bundle.")] = "json",
    device: DeviceName = AUTO,
    min_gain: Annotated[
        float | None,
        typer.Option(min=0.0, max=100.0, help="Least gain over the library's first choice, by the low end of its 95 % "
                          f"interval. \\[default: {MIN_GAIN}]"),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Export every best with its evidence, as json.")
    ] = False,
    neighbours: Neighbours = "plain",
    problems: Annotated[
        list[Path] | None, typer.Option(help="Only the problems in this file, as for `gemmtune shapes`; repeatable.")
    ] = None,
    ms: Ms = None,
    tp: Tp = 1,
    tf32: Tf32 = False,
    block_scaled_as: BlockScaledAs = "",
    torch: Annotated[str, typer.Option(help="tunableop: PyTorch's version, as in 2.14.1.")] = "",
    gpus: Annotated[int, typer.Option(help="tunableop: number of GPUs; each one reads its own file.")] = 1,
    db: Db = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Writes the bests of one device as a table, atomically.

    Exports measured configs only. A problem gets its config if the low end of its paired interval against the library's
    first choice lies above --min-gain. Any other problem gets null: keep the library there.
    """
    exporter = exporter_named(format)
    if everything and (format != "json" or min_gain is not None or problems or neighbours != "plain"):
        others = "--format, --min-gain, --neighbours and --problems"
        raise ConfigError(f"--all is the whole table as json: leave out {others}")
    if format == "tunableop" and neighbours != "plain":
        raise ConfigError("tunableop lists the library's kernels, which never start early: leave out --neighbours")
    asked = shapes_told(problems, asked_of(ms, tp, tf32, block_scaled_as)) if problems else None
    if asked and not asked.counts:
        raise ConfigError(f"{' + '.join(map(str, problems or ()))} lists no problem to export: give one that does")
    keys = {problem.key for problem in asked.counts} if asked else None
    with existing_store(db) as store:
        policy = policy_of(None, neighbours)
        document = library_table(store, device) if format == "tunableop" else table(store, device, policy)
        tuned = {best.problem.key for best in chosen_bests(store, device)} if keys or format == "tunableop" else set()
    never = sorted((keys or set()) - tuned)
    if everything:
        _export_everything(document, out, as_json)
        return
    least = MIN_GAIN if min_gain is None else min_gain
    chosen = guarded(document, least, keys)
    if format == "tunableop":
        uncompared = tuned - {entry["problem"]["key"] for entry in document["entries"]}
        chosen = with_rows(_without(chosen, sorted(uncompared if keys is None else uncompared & keys)))
    wanted = Wanted(str(out), gpus, torch, programs_of(device, settings().cache_dir), plans_of(device))
    if format == "bundle" and wanted.program:
        # An entry without a program is left to the library, and the report counts it.
        chosen, _ = with_programs(chosen, wanted.program)
    files = exporter.files(chosen, wanted)
    if format == "bundle":
        export_folder(out, files)
    else:
        export_files({Path(name): content for name, content in files.items()})
    changed = stale(device, chosen.entries)
    report = {"out": str(out), "files": sorted(files), "entries": len(chosen.entries), "min_gain": least,
              "library": len(chosen.library), "left_out": dict(chosen.left_out),
              "stale": changed, "never_tuned": never}  # fmt: skip
    next_step = exporter.next_step(chosen, wanted)
    if format == "json" and chosen.left_out:
        next_step = f"--all exports those too, with their evidence\n{next_step}"
    if keys and never:
        said = "was" if len(never) == 1 else "were"
        next_step = f"{len(never):,} of {len(keys):,} problems in the files {said} never tuned on {device}\n{next_step}"
    say(_report(chosen, out, _changed(changed) + next_step.rstrip()), report, as_json)


def _export_everything(document: dict[str, Any], out: Path, as_json: bool) -> None:
    # The same bytes as over HTTP without a format.
    export_file(out, table_bytes(document))
    count, content, doubtful = len(document["entries"]), document["content"], guarded(document).left_out
    lines = [f"{out}: {_bests(count, document['device'])}, content {content[:12]}"]
    lines += [f"{found:,} of them {reason}" for reason, found in doubtful.items()]
    changed = stale(document["device"], document["entries"])
    if doubtful:
        lines.append("install() leaves those to the library; an export without --all writes null")
    lines += _changed(changed).splitlines()
    report = {"out": str(out), "entries": count, "content": content, "doubtful": dict(doubtful),
              "stale": changed}  # fmt: skip
    say("\n".join(lines), report, as_json)


def _changed(count: int) -> str:
    """A line that says how many entries are stale; empty without any."""
    said = "entry was" if count == 1 else "entries were"
    since = "measured with kernels that have changed since: `gemmtune retune --stale` measures again"
    return f"{count:,} {said} {since}\n" if count else ""


def _without(chosen: Guarded, uncompared: list[str]) -> Guarded:
    """The table with the problems that a library's table lacks among those left to the library."""
    reason = {"never compared with cuBLASLt's candidates: tune with the extra `gpu`": len(uncompared)}
    found = replace(chosen, library=[*chosen.library, *uncompared])
    return replace(found, left_out={**chosen.left_out, **reason}) if uncompared else found


def _report(chosen: Guarded, out: Path, next_step: str) -> str:
    lines = [f"{out}: {_bests(len(chosen.entries), chosen.device)}"]
    lines += [f"left to the library {found:,} ×: {reason}" for reason, found in chosen.left_out.items()]
    return "\n".join([*lines, next_step] if next_step else lines)


def _bests(count: int, device: str) -> str:
    return f"{count} {'best' if count == 1 else 'bests'} of {device}"
