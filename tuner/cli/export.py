"""`gemmtune export`: a device's bests as a table in one of several formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from space.devices import profile_named
from space.errors import ConfigError
from space.kind import problem_from_key
from tuner.answering.answers import policy_of
from tuner.cli.options import AUTO, Db, DeviceName, Json, existing_store, same_place
from tuner.cli.output import say
from tuner.cli.query import Neighbours
from tuner.cli.shape_options import BlockScaledAs, Ms, Tf32, Tp, asked_of, shapes_told
from tuner.evidence.store import Store
from tuner.files import export_file, export_files, export_folder
from tuner.hints import tune_command
from tuner.settings import settings
from tuner.tables.exporters import EXPORTERS, Exporter, exporter_named, json_table
from tuner.tables.exporters.guard import MIN_GAIN, Guarded, guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.importers.source import Asked
from tuner.tables.library import library_table
from tuner.tables.programs import plans_of, programs_of, stale
from tuner.tables.tables import legal_of, table_bytes, table_of, tuned_bests
from workers.measurement import Policy

#: The format of `--all`, and of an export that names none.
_WHOLE: Final = json_table.NAME
_FORMATS: Final = f"{', '.join([*EXPORTERS][:-1])} or {[*EXPORTERS][-1]}."


def export(
    out: Annotated[Path, typer.Option(help="File to write; for a bundle, a new folder.")],
    format: Annotated[str, typer.Option("--format", help=_FORMATS)] = _WHOLE,
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
    gpus: Annotated[int, typer.Option(min=1, help="tunableop: number of GPUs; each one reads its own file.")] = 1,
    db: Db = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Writes the bests of one device as a table, atomically.

    Exports measured configs only. A problem gets its config if the low end of its paired interval against the library's
    first choice lies above --min-gain. Any other problem gets null: keep the library there.
    """
    exporter = exporter_named(format)
    if everything and (format != _WHOLE or min_gain is not None or problems or neighbours != "plain"):
        others = "--format, --min-gain, --neighbours and --problems"
        raise ConfigError(f"--all is the whole table as json: leave out {others}")
    if not exporter.OF_LIBRARY and (torch or gpus != 1):
        raise ConfigError(f"--torch and --gpus are for tunableop: leave them out of {format}")
    if exporter.OF_LIBRARY and neighbours != "plain":
        raise ConfigError(f"{format} lists the library's kernels, which never start early: leave out --neighbours")
    if not problems and (ms or tp > 1 or tf32 or block_scaled_as):
        raise ConfigError("--m, --tp, --tf32 and --block-scaled-as say how the files of --problems are read: name one")
    keys = _listed(problems, asked_of(ms, tp, tf32, block_scaled_as)) if problems else None
    with existing_store(db) as store:
        if device not in {name for name, _ in store.devices()}:
            profile_named(device)  # a misspelt card can't be tuned
        found = _read(store, device, policy_of(None, neighbours), exporter, keys, same_place(db))
    if everything:
        _export_everything(found, out, as_json)
        return
    options = ExportOptions(str(out), gpus, torch, programs_of(device, settings().cache_dir), plans_of(device))
    kept = guarded(found.document, MIN_GAIN if min_gain is None else min_gain, keys)
    kept = exporter.writable(_with_uncompared(kept, found.uncompared), options)
    _export_guarded(kept, found, exporter, options, as_json)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a store has for an export.

    Attributes:
        document: the table.
        listed: number of problems in the user's files.
        never_tuned: keys of those of them that have no best.
        forbidden: keys of the bests to export whose config a rule forbids by now.
        uncompared: keys of the bests to export that a library's table lacks.
        place: how a command that measures again names the store.
    """

    document: dict[str, Any]
    listed: int
    never_tuned: list[str]
    forbidden: list[str]
    uncompared: list[str]
    place: str


def _listed(problems: list[Path], asked: Asked) -> set[str]:
    """The keys of the problems in files."""
    counts = shapes_told(problems, asked).counts
    if not counts:
        raise ConfigError(f"{' + '.join(map(str, problems))} lists no problem to export: give one that does")
    return {problem.key for problem in counts}


def _read(
    store: Store, device: str, policy: Policy | None, exporter: Exporter, keys: set[str] | None, place: str
) -> _Found:
    bests = tuned_bests(store, device, policy)
    legal = legal_of(bests)
    document = library_table(store, device) if exporter.OF_LIBRARY else table_of(legal, device)
    tuned, usable = ({best.problem.key for best in some} for some in (bests, legal))
    asked = tuned if keys is None else keys
    in_table = {entry["problem"]["key"] for entry in document["entries"]}
    uncompared = sorted((usable & asked) - in_table) if exporter.OF_LIBRARY else []
    never_tuned, forbidden = sorted(asked - tuned), sorted((tuned - usable) & asked)
    return _Found(document, len(keys or ()), never_tuned, forbidden, uncompared, place)


def _export_everything(found: _Found, out: Path, as_json: bool) -> None:
    document = found.document
    # The same bytes as over HTTP without a format.
    export_file(out, table_bytes(document))
    count, content, doubtful = len(document["entries"]), document["content"], guarded(document).left_out
    lines = [f"{out}: {_bests(count, document['device'])}, content {content[:12]}"]
    lines += [f"{many:,} of them {reason}" for reason, many in doubtful.items()]
    changed = stale(document["device"], document["entries"])
    if doubtful:
        lines.append("install() leaves those to the library; an export without --all writes null")
    lines += _forbidden(found) + _changed(changed, found.place)
    report = {"out": str(out), "entries": count, "content": content, "doubtful": dict(doubtful),
              "stale": len(changed), "forbidden": found.forbidden}  # fmt: skip
    say("\n".join(lines), report, as_json)


def _export_guarded(kept: Guarded, found: _Found, exporter: Exporter, options: ExportOptions, as_json: bool) -> None:
    out, files = Path(options.name), exporter.files(kept, options)
    if exporter.FOLDER:
        export_folder(out, files)
    else:
        export_files({Path(name): content for name, content in files.items()})
    changed = stale(kept.device, kept.entries)
    lines = _lines(_written(out, exporter, files), kept, found, changed)
    if exporter.NAME == _WHOLE and kept.left_out:
        lines.append("--all exports those too, with their evidence")
    lines += _forbidden(found)
    if step := exporter.next_step(kept, options):
        lines.append(step)
    report = {"out": str(out), "files": sorted(files), "entries": len(kept.entries), "min_gain": kept.min_gain,
              "library": len(kept.library), "left_out": dict(kept.left_out),
              "stale": len(changed), "never_tuned": found.never_tuned, "forbidden": found.forbidden}  # fmt: skip
    say("\n".join(lines), report, as_json)


def _with_uncompared(kept: Guarded, uncompared: list[str]) -> Guarded:
    """The table with the problems that a library's table lacks among those left to the library."""
    if not uncompared:
        return kept
    reason = {"never compared with cuBLASLt's candidates: tune with the extra `gpu`": len(uncompared)}
    return replace(kept, library=[*kept.library, *uncompared], left_out={**kept.left_out, **reason})


def _written(out: Path, exporter: Exporter, files: Mapping[str, bytes]) -> str:
    """The folder or the file, or the first and the last of several files."""
    first, *others = [str(out)] if exporter.FOLDER else files
    return f"{first} to {others[-1]}" if others else first


def _lines(written: str, kept: Guarded, found: _Found, changed: list[Mapping[str, Any]]) -> list[str]:
    """How many entries are written, and why others are not; what is stale; what was never tuned."""
    lines = [f"{written}: {_bests(len(kept.entries), kept.device)}"]
    lines += [f"left to the library {count:,} ×: {reason}" for reason, count in kept.left_out.items()]
    lines += _changed(changed, found.place)
    if never := len(found.never_tuned):
        said = "was" if never == 1 else "were"
        lines.append(f"{never:,} of {found.listed:,} problems in the files {said} never tuned on {kept.device}")
    return lines


def _forbidden(found: _Found) -> list[str]:
    """A line that says how many bests are missing because a rule forbids them by now; none without any."""
    said = "best is" if len(found.forbidden) == 1 else "bests are"
    why = f"left out: a rule forbids the config by now; `gemmtune retune --stale{found.place}` measures again"
    return [f"{len(found.forbidden):,} {said} {why}"] if found.forbidden else []


def _changed(changed: list[Mapping[str, Any]], place: str) -> list[str]:
    """Lines that say how many entries are stale, and what measures them again; none without any."""
    replays = [problem_from_key(entry["problem"]["key"]) for entry in changed if entry["device_kind"] == "recorded"]
    tune, first = tune_command(replays[0]) if replays else "", "" if len(replays) == 1 else "the first of them "
    lines = []
    # On a GPU `retune` takes up what a GPU measured; a replay would only be replayed.
    for count, what, again, which in (
        (len(changed) - len(replays), "or NVRTC has changed since", "gemmtune retune --stale", ""),
        (len(replays), "has changed since a GPU's times were recorded", tune, first),
    ):
        said = "entry is stale: its kernel" if count == 1 else "entries are stale: their kernels"
        then = what if count == 1 else what.replace("has", "have")
        lines += [f"{count:,} {said} {then}; `{again}{place}` measures {which}again on the GPU"] if count else []
    return lines


def _bests(count: int, device: str) -> str:
    return f"{count} {'best' if count == 1 else 'bests'} of {device}"
