"""`gemmtune layout swizzle`, `boxes` and `banks`: tiles in shared memory."""

from __future__ import annotations

from typing import Annotated

import typer

from space.layouts.banks import BANKS, PATTERNS
from tuner.cli.layout.options import (
    BoxCols,
    Cols,
    ElementType,
    MajorText,
    Mode,
    Rows,
    Svg,
    draw,
    major_from,
    number_from,
)
from tuner.cli.options import Json
from tuner.cli.output import console, emit, table
from tuner.views import layouts


def swizzle(
    mode: Mode = "128B",
    rows: Rows = 8,
    cols: Cols = 64,
    dtype: ElementType = "bf16",
    box_cols: BoxCols = None,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Shows the shared-memory offset and the banks of each 16-byte column of a swizzled tile."""
    plan = layouts.tile_of(rows, cols, dtype, mode, box_cols)
    drawn = layouts.swizzle(plan)
    draw(svg, drawn.svg)
    if as_json:
        emit(drawn.document)
        return
    console.print(f"swizzle {plan.swizzle.name}: {rows} x {cols} {dtype}, {plan.pitch_bytes} B from row to row; the "
                  f"pattern repeats after {plan.swizzle.pattern_bytes} B")  # fmt: skip
    console.print("first bank of each 16-byte column (4 banks each):")
    first_banks = drawn.document["first_banks"]
    heads = ("row", *(f"c{chunk}" for chunk in range(len(first_banks[0]))))
    table(heads, [(row, *line) for row, line in enumerate(first_banks)])


def boxes(
    rows: Rows = 128,
    cols: Cols = 64,
    dtype: ElementType = "bf16",
    mode: Mode = "128B",
    box_cols: BoxCols = None,
    major: MajorText = "k",
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Shows how TMA loads a tile: its boxes, their sizes and offsets, and the strides that wgmma uses.

    With --major k, rows are M or N and columns are K; with --major mn, rows are K and columns are M or N.
    """
    plan = layouts.tile_of(rows, cols, dtype, mode, box_cols)
    drawn = layouts.boxes(plan, dtype, major_from(major))
    draw(svg, drawn.svg)
    if as_json:
        emit(drawn.document)
        return
    walk = drawn.document["operand"]
    count = len(plan.boxes)
    console.print(f"{rows} x {cols} {dtype}, swizzle {plan.swizzle.name}: {count} box{'es' * (count > 1)}, "
                  f"{plan.smem_bytes:,} B of shared memory, aligned to {plan.alignment_bytes:,} B")  # fmt: skip
    table(("box", "column", "row", "columns", "rows", "shared memory"), [
        (number, box.column, box.row, box.columns, box.rows, f"{box.smem_offset_bytes:#x}")
        for number, box in enumerate(plan.boxes)])  # fmt: skip
    console.print(f"as a {major}-major operand: " + (
        f"leading byte offset {walk['leading_bytes']:,}, stride byte offset {walk['stride_bytes']:,}"
        if "leading_bytes" in walk else str(walk["why_not"])))  # fmt: skip


def banks(
    pattern: Annotated[str, typer.Argument(help=f"{', '.join(PATTERNS)}; not with --addresses.")] = "ldmatrix.x4",
    rows: Rows = 64,
    cols: Cols = 64,
    dtype: ElementType = "bf16",
    mode: Mode = "128B",
    box_cols: BoxCols = None,
    row: Annotated[int, typer.Option(help="First row of the access.")] = 0,
    column: Annotated[int, typer.Option(help="First column of the access.")] = 0,
    addresses: Annotated[str, typer.Option(help="Byte address of each lane, separated by commas.")] = "",
    width: Annotated[int, typer.Option(help="Bytes per lane, with --addresses.")] = 4,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Shows the bank conflicts of an access: its wavefronts, and the banks that lanes access."""
    if addresses:
        name, made = layouts.access_at([number_from("address", part) for part in addresses.split(",")], width)
    else:
        plan = layouts.tile_of(rows, cols, dtype, mode, box_cols)
        name, made = layouts.access_of(plan, pattern, row, column)
    drawn = layouts.banks(name, made)
    draw(svg, drawn.svg)
    if as_json:
        emit(drawn.document)
        return
    degree = drawn.document["degree"]
    console.print(f"{name}: {'no conflict' if degree == 1 else f'{degree}-way conflict'}, "
                  f"{drawn.document['wavefronts']} wavefronts, {drawn.document['ideal_wavefronts']} without conflicts"
                  )  # fmt: skip
    table(("lanes", "wavefronts", "ideal", "fullest bank"), [
        (f"{phase.lanes[0]}-{phase.lanes[-1]}", phase.wavefronts, phase.ideal_wavefronts,
         max(range(BANKS), key=[len(words) for words in phase.words].__getitem__))
        for each in made for phase in each.phases])  # fmt: skip
