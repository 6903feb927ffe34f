"""Layouts of the kernels as documents and drawings: what `gemmtune layout` prints, and the service answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from space.arch import WORD_BYTES
from space.errors import LayoutError
from space.instructions.operand import Major
from space.layouts.banks import BANKS, Access, access, tile_access
from space.layouts.boxes import BoxPlan, plan_boxes
from space.layouts.descriptor import Tcgen05Descriptor, WgmmaDescriptor
from space.layouts.draw.fragments import fragment_svg, scale_factors_svg
from space.layouts.draw.memory import access_svg, boxes_svg, swizzle_svg
from space.layouts.draw.words import word_svg
from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.named import fragment_named
from space.layouts.fragments.scale_factors import ScaleFactors, scale_factors
from space.layouts.operand import OperandTile
from space.layouts.swizzle import CORE_BYTES, swizzle_named
from space.layouts.tcgen05_instruction import Tcgen05Instruction, kind_named
from tuner.tables.entries import fields

#: Descriptors by the unit that reads them.
DESCRIPTORS: Final[dict[str, type[WgmmaDescriptor | Tcgen05Descriptor]]] = {
    "wgmma": WgmmaDescriptor, "tcgen05": Tcgen05Descriptor,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """A layout as a document, and as an SVG drawing."""

    document: dict[str, Any]
    svg: Callable[[], str]


def swizzle(plan: BoxPlan) -> Drawn:
    """Offset and first bank of each 16-byte column of a swizzled tile."""
    step = CORE_BYTES // plan.element_bytes
    places = [[plan.offset(row, column) for column in range(0, plan.columns, step)] for row in range(plan.rows)]
    document = {
        "mode": plan.swizzle.name, "span_bytes": plan.swizzle.span_bytes, "pattern_bytes": plan.swizzle.pattern_bytes,
        "pitch_bytes": plan.pitch_bytes, "offsets_bytes": places,
        "first_banks": [[place // WORD_BYTES % BANKS for place in line] for line in places],
    }  # fmt: skip
    return Drawn(document, lambda: swizzle_svg(plan))


def boxes(plan: BoxPlan, dtype: str, major: Major) -> Drawn:
    """The boxes with which TMA loads a tile, and the strides with which wgmma and tcgen05 read it."""
    document = {
        "boxes": plan.boxes, "box_bytes": plan.boxes[0].rows * plan.pitch_bytes, "smem_bytes": plan.smem_bytes,
        "alignment_bytes": plan.alignment_bytes, "swizzle": plan.swizzle.name, "operand": _walk(plan, dtype, major),
    }  # fmt: skip
    return Drawn(document, lambda: boxes_svg(plan))


def tile_of(rows: int, cols: int, dtype: str, mode: str, box_cols: int | None) -> BoxPlan:
    """The boxes of a tile.

    Raises:
        LayoutError: no TMA box has this shape, or a name is unknown.
    """
    return plan_boxes(rows, cols, dtype, swizzle_named(mode), box_cols)


def banks(name: str, made: list[Access]) -> Drawn:
    """The bank conflicts of an access."""
    accesses = [{"addresses": each.addresses, "width_bytes": each.width_bytes, "wavefronts": each.wavefronts}
                for each in made]  # fmt: skip
    document = {
        "access": name, "degree": max(each.degree for each in made),
        "wavefronts": sum(each.wavefronts for each in made),
        "ideal_wavefronts": sum(each.ideal_wavefronts for each in made), "accesses": accesses,
    }  # fmt: skip
    return Drawn(document, lambda: access_svg(name, made))


def access_of(plan: BoxPlan, pattern: str, row: int, column: int) -> tuple[str, list[Access]]:
    """Name and accesses of a pattern in a tile.

    Raises:
        LayoutError: the pattern is unknown, or leaves the tile.
    """
    return f"{pattern}, {plan.swizzle.name}", list(tile_access(plan, pattern, row, column))


def access_at(addresses: list[int], width_bytes: int) -> tuple[str, list[Access]]:
    """Name and accesses of lanes at these byte addresses.

    Raises:
        LayoutError: more lanes than a warp has, or a width that no access has.
    """
    return f"{width_bytes} B per lane", [access(addresses, width_bytes)]


def fragment(instruction: str, operand: str, dtype: str, thread: int | None) -> tuple[Fragment, Drawn]:
    """Which thread and register hold each element of an operand.

    Raises:
        LayoutError: an unknown instruction, operand or dtype, or no such thread.
    """
    made = fragment_named(instruction, operand, dtype)
    if thread is not None and not 0 <= thread < made.threads:
        raise LayoutError(f"thread {thread}: {made.name} has threads 0 to {made.threads - 1}")
    held = []
    for owner in range(made.threads) if thread is None else (thread,):
        for element in range(made.elements):
            register, bit = made.slot(element)
            held.append({"thread": owner, "register": register, "bit": bit, "matrix": int(made.matrix[owner, element]),
                         "row": int(made.row[owner, element]), "column": int(made.column[owner, element])})  # fmt: skip
    names = ("source", "rows", "columns", "matrices", "threads", "registers", "element_bits")
    document = {"fragment": made.name, **{name: getattr(made, name) for name in names}, "elements": held}
    return made, Drawn(document, lambda: fragment_svg(made))


def scales(vector: str, rows: int, sf_id: int) -> tuple[ScaleFactors, Drawn]:
    """Where block-scaled tcgen05.mma reads its scale factors in tensor memory.

    Raises:
        LayoutError: an unknown vector, or rows that no operand has.
    """
    made = scale_factors(vector.upper(), rows, sf_id)
    places = [
        {"row": row, "block": block, "lanes": made.lane[row, block].tolist(),
         "column": int(made.column[row, block, 0]), "byte": int(made.byte[row, block, 0])}
        for row in range(rows) for block in range(made.lane.shape[1])
    ]  # fmt: skip
    document = {"vector": made.vector, "rows": rows, "columns": made.columns, "factors": places}
    return made, Drawn(document, lambda: scale_factors_svg(made))


def descriptor(target: str, made: WgmmaDescriptor | Tcgen05Descriptor) -> Drawn:
    """The bits of a shared-memory matrix descriptor."""
    bits = made.encode()
    values = fields(made) | {"start_address": f"{made.start_address:#x}", "swizzle": made.swizzle.name}
    words = {name: str(value) for name, value in values.items()}
    title = f"{target} shared-memory descriptor"
    return Drawn(word_document(bits, 64, values), lambda: word_svg(title, type(made).FIELDS, bits, 64, words))


def instruction(kind: str, made: Tcgen05Instruction) -> Drawn:
    """The bits of an instruction descriptor of tcgen05.mma."""
    bits, facts = made.encode(), kind_named(kind)
    title = f"tcgen05.mma instruction descriptor, kind::{kind}"
    return Drawn(word_document(bits, 32, fields(made)), lambda: word_svg(title, facts.fields, bits, 32, {}))


def word_document(bits: int, length: int, values: dict[str, Any]) -> dict[str, Any]:
    """A word of so many bits, and its fields."""
    return {"word": f"{bits:#0{length // 4 + 2}x}", "fields": values}


def _walk(plan: BoxPlan, dtype: str, major: Major) -> dict[str, Any]:
    """Strides of the plan for wgmma and tcgen05, or the reason why they can't read it."""
    mn, k = (plan.rows, plan.columns) if major == "k" else (plan.columns, plan.rows)
    try:
        operand = OperandTile(mn, k, dtype, major, plan.swizzle)
    except LayoutError as error:
        return {"major": major, "why_not": str(error)}
    if operand.plan != plan:
        return {"major": major, "why_not": f"wgmma and tcgen05 read boxes of {operand.plan.box_columns} columns"}
    return {"major": major, **fields(operand.strides)}
