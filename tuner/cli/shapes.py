"""`gemmtune shapes`: the problems of a program or model, with their counts and roofline times."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from space.devices import profile_named
from space.errors import ProblemError
from tuner.cli.options import AUTO, DeviceName, Json
from tuner.cli.output import console, notes, show, table
from tuner.cli.shape_options import BlockScaledAs, Ms, Sources, Tf32, Tp, asked_of
from tuner.counts import counted
from tuner.files import export_file
from tuner.tables.importers import shapes_of
from tuner.tables.shapes import Shapes, Weighted, as_csv, weighted

_MOST_SHOWN: Final = 40


def shapes(
    sources: Sources = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write, for `gemmtune campaign`.")] = None,
    ms: Ms = None,
    tp: Tp = 1,
    tf32: Tf32 = False,
    block_scaled_as: BlockScaledAs = "",
    device: DeviceName = AUTO,
    every: Annotated[bool, typer.Option("--all", help=f"List all problems, not the first {_MOST_SHOWN}.")] = False,
    as_json: Json = False,
) -> None:
    """Lists the problems in files of many formats, with counts and roofline times, and what was left out.

    Reads CSV and JSON lists, TunableOp's CSV, torch profiler traces, logs of vLLM and SGLang, CUTLASS problems and
    Hugging Face's config.json. Each file is recognized by its content, and read whole or refused.
    """
    if not sources:
        raise ProblemError("no source given: name a file, as in gemmtune shapes trace.json.gz")
    found = shapes_of(sources, asked_of(ms, tp, tf32, block_scaled_as))
    listed = weighted(found, profile_named(device))
    if out and not listed:
        told = "; without --out the command says what is left out" if found.left_out else ""
        raise ProblemError(f"{' + '.join(map(str, sources))} lists no problem: nothing is written to {out}{told}")
    if out:
        export_file(out, as_csv([(each.problem, each.count) for each in listed]).encode())
    document = {
        "device": device,
        "shapes": [
            {"problem": each.problem.document(), "count": each.count, "roofline_us": each.roofline_us,
             "share": each.share}
            for each in listed
        ],
        "left_out": dict(found.left_out),
        "notes": list(found.notes),
        "out": str(out) if out else None,
    }  # fmt: skip
    show(document, as_json, lambda _: _print(listed, found, device, out, every))


def _print(listed: list[Weighted], found: Shapes, device: str, out: Path | None, every: bool) -> None:
    shown = listed if every else listed[:_MOST_SHOWN]
    rows = [(each.problem.title, f"{each.count:,}", f"{each.roofline_us:.2f}", f"{each.share:.1%}") for each in shown]
    table(("problem", "count", "roofline µs", "share"), rows)
    if len(shown) < len(listed):
        rest = sum(each.share for each in listed[len(shown) :])
        console.print(f"and {len(listed) - len(shown):,} more, {rest:.1%} of the time: --all lists them")
    runs = sum(each.count for each in listed)
    console.print(f"{counted(len(listed), 'problem')}, {counted(runs, 'run')}; times are roofline bounds on {device}")
    for reason, count in found.left_out.items():
        console.print(f"left out {count:,} ×: {reason}")
    for sentence in found.notes:
        notes.print(sentence)
    if out:
        console.print(f"{out} is written; to tune it: gemmtune campaign run {shlex.quote(str(out))}")
