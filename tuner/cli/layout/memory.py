"""`gemmtune layout swizzle`, `boxes` and `banks`: tiles in shared memory."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from space.errors import LayoutError
from space.instructions.operand import Major
from space.layouts.banks import BANKS, PATTERNS, access, tile_access
from space.layouts.boxes import BoxPlan, plan_boxes
from space.layouts.draw.memory import access_svg, boxes_svg, swizzle_svg
from space.layouts.operand import OperandTile
from space.layouts.swizzle import swizzle_named
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
from tuner.tables.entries import fields


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
    plan = plan_boxes(rows, cols, dtype, swizzle_named(mode), box_cols)
    draw(svg, lambda: swizzle_svg(plan))
    step = 16 // plan.element_bytes
    places = [[plan.offset(row, column) for column in range(0, cols, step)] for row in range(rows)]
    if as_json:
        emit(
            {
                "mode": plan.swizzle.name, "span_bytes": plan.swizzle.span_bytes,
                "pattern_bytes": plan.swizzle.pattern_bytes, "pitch_bytes": plan.pitch_bytes,
                "offsets_bytes": places, "first_banks": [[place // 4 % 32 for place in line] for line in places],
            }
        )  # fmt: skip
        return
    console.print(f"swizzle {plan.swizzle.name}: {rows} x {cols} {dtype}, {plan.pitch_bytes} B from row to row; the "
                  f"pattern repeats after {plan.swizzle.pattern_bytes} B")  # fmt: skip
    console.print("first bank of each 16-byte column (4 banks each):")
    heads = ("row", *(f"c{chunk}" for chunk in range(len(places[0]))))
    table(heads, [(row, *(place // 4 % 32 for place in line)) for row, line in enumerate(places)])


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
    plan = plan_boxes(rows, cols, dtype, swizzle_named(mode), box_cols)
    draw(svg, lambda: boxes_svg(plan))
    walk = _walk(plan, rows, cols, dtype, major_from(major))
    if as_json:
        emit(
            {
                "boxes": plan.boxes, "box_bytes": plan.boxes[0].rows * plan.pitch_bytes,
                "smem_bytes": plan.smem_bytes, "alignment_bytes": plan.alignment_bytes,
                "swizzle": plan.swizzle.name, "operand": walk,
            }
        )  # fmt: skip
        return
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
        name = f"{width} B per lane"
        made = [access([number_from("address", part) for part in addresses.split(",")], width)]
    else:
        plan = plan_boxes(rows, cols, dtype, swizzle_named(mode), box_cols)
        name, made = f"{pattern}, {plan.swizzle.name}", tile_access(plan, pattern, row, column)
    draw(svg, lambda: access_svg(name, made))
    degree = max(each.degree for each in made)
    wavefronts, ideal = sum(each.wavefronts for each in made), sum(each.ideal_wavefronts for each in made)
    if as_json:
        accesses = [{"addresses": each.addresses, "width_bytes": each.width_bytes, "wavefronts": each.wavefronts}
                    for each in made]  # fmt: skip
        emit({"access": name, "degree": degree, "wavefronts": wavefronts, "ideal_wavefronts": ideal,
              "accesses": accesses})  # fmt: skip
        return
    console.print(f"{name}: {'no conflict' if degree == 1 else f'{degree}-way conflict'}, {wavefronts} wavefronts, "
                  f"{ideal} without conflicts")  # fmt: skip
    table(("lanes", "wavefronts", "ideal", "fullest bank"), [
        (f"{phase.lanes[0]}-{phase.lanes[-1]}", phase.wavefronts, phase.ideal_wavefronts,
         max(range(BANKS), key=[len(words) for words in phase.words].__getitem__))
        for each in made for phase in each.phases])  # fmt: skip


def _walk(plan: BoxPlan, rows: int, cols: int, dtype: str, major: Major) -> dict[str, Any]:
    """Strides of the plan for wgmma and tcgen05, or the reason why they can't read it."""
    mn, k = (rows, cols) if major == "k" else (cols, rows)
    try:
        operand = OperandTile(mn, k, dtype, major, plan.swizzle)
    except LayoutError as error:
        return {"major": major, "why_not": str(error)}
    if operand.plan != plan:
        return {"major": major, "why_not": f"wgmma and tcgen05 read boxes of {operand.plan.box_columns} columns"}
    return {"major": major, **fields(operand.strides)}
