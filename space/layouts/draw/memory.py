"""Drawings of shared memory: swizzled 16-byte columns, the boxes of a tile, and the banks of an access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from space.arch import WORD_BYTES
from space.layouts.banks import BANKS, BYTES_PER_CLOCK, Access, Phase
from space.layouts.boxes import BoxPlan
from space.layouts.draw.canvas import FAINT, PAD, UNUSED, WARNING, Canvas, color_of
from space.layouts.swizzle import CORE_BYTES

_CELL: Final = (52.0, 18.0)
_HEAD: Final = 40.0
#: Rows drawn of a tile; every pattern repeats within them.
_MAX_ROWS: Final = 64


def swizzle_svg(plan: BoxPlan) -> str:
    """The tile on the left, shared memory by banks on the right; one colour per 16-byte column."""
    rows = min(plan.rows, _MAX_ROWS)
    chunks = plan.columns * plan.element_bytes // CORE_BYTES
    note = f"a cell is 16 bytes, row.column; {plan.pitch_bytes} B from row to row; a 128-byte line is all 32 banks"
    canvas = Canvas(f"swizzle {plan.swizzle.name}: {plan.rows} x {plan.columns} of {plan.element_bytes} B", note)
    width, height = _CELL
    left, top = PAD + _HEAD, canvas.top + _HEAD
    right = left + chunks * width + 2 * _HEAD
    canvas.text(left, top - 24, "tile: 16-byte columns", size=11, bold=True)
    canvas.text(right, top - 24, "shared memory: 128-byte lines, banks", size=11, bold=True)
    for chunk in range(chunks):
        canvas.text(left + (chunk + 0.5) * width, top - 5, str(chunk), size=9, fill=FAINT, anchor="middle")
    for place in range(BYTES_PER_CLOCK // CORE_BYTES):
        banks = f"{4 * place}-{4 * place + 3}"
        canvas.text(right + (place + 0.5) * width, top - 5, banks, size=9, fill=FAINT, anchor="middle")
    every_row, every_chunk = np.indices((rows, chunks), dtype=np.int64)
    offsets = plan.offset(every_row, every_chunk * (CORE_BYTES // plan.element_bytes))
    for r in range(rows):
        canvas.text(left - 6, top + (r + 0.68) * height, str(r), size=9, fill=FAINT, anchor="end")
        for c in range(chunks):
            line, byte = divmod(int(offsets[r, c]), BYTES_PER_CLOCK)
            fill, label = color_of(c, chunks), f"{r}.{c}"
            canvas.cell(left + c * width, top + r * height, width, height, fill, label)
            canvas.cell(right + byte // CORE_BYTES * width, top + line * height, width, height, fill, label,
                        f"row {r}, bytes {16 * c}-{16 * c + 15}: offset {offsets[r, c]:#x}")  # fmt: skip
    for line in range(int(offsets.max()) // BYTES_PER_CLOCK + 1):
        y = top + (line + 0.68) * height
        canvas.text(right - 6, y, f"{line * BYTES_PER_CLOCK:#x}", size=9, fill=FAINT, anchor="end")
    return canvas.svg()


def boxes_svg(plan: BoxPlan) -> str:
    """The tile with its boxes, each with number, size and offset in shared memory."""
    boxes = plan.boxes
    canvas = Canvas(
        f"{plan.rows} x {plan.columns} of {plan.element_bytes} B in {len(boxes)} box{'es' * (len(boxes) > 1)}",
        f"swizzle {plan.swizzle.name}, {plan.smem_bytes:,} B of shared memory, aligned to {plan.alignment_bytes:,} B; "
        f"columns are contiguous",
    )
    scale_x, scale_y = max(1.2, min(8.0, 720 / plan.columns)), max(0.6, min(4.0, 420 / plan.rows))
    left, top = PAD + _HEAD, canvas.top + 22
    for number, box in enumerate(boxes):
        x, y = left + box.column * scale_x, top + box.row * scale_y
        wide, deep = box.columns * scale_x, box.rows * scale_y
        hint = f"box {number}: {box.columns} x {box.rows} from column {box.column}, row {box.row}"
        canvas.cell(x, y, wide, deep, color_of(number, len(boxes)), hint=hint, stroke="#1c2430")
        size = min(12.0, wide / 8, deep / 3)
        lines = (f"box {number}", f"{box.columns} x {box.rows}", f"at {box.smem_offset_bytes:#x}")
        for place, line in enumerate(lines):
            canvas.text(x + wide / 2, y + deep / 2 + (place - 0.7) * size * 1.2, line, size=size, anchor="middle")
        if box.row == 0:
            canvas.text(x, top - 6, str(box.column), size=9, fill=FAINT)
        if box.column == 0:
            canvas.text(left - 6, y + 9, str(box.row), size=9, fill=FAINT, anchor="end")
    return canvas.svg()


def access_svg(name: str, accesses: Sequence[Access]) -> str:
    """A row per wavefront, a column per bank, and a cell per word with the lanes that access it."""
    taken, ideal = sum(each.wavefronts for each in accesses), sum(each.ideal_wavefronts for each in accesses)
    degree = max(each.degree for each in accesses)
    verdict = "no conflict" if degree == 1 else f"{degree}-way conflict"
    note = f"{taken} wavefronts, {ideal} without conflicts; columns are banks, cells show lanes"
    canvas = Canvas(f"{name}: {verdict}", note)
    y = float(canvas.top + 24)
    for bank in range(BANKS):
        x = PAD + 2.4 * _HEAD + (bank + 0.5) * 30
        canvas.text(x, y - 6, str(bank), size=9, fill=FAINT, anchor="middle")
    for number, each in enumerate(accesses):
        for place, phase in enumerate(each.phases):
            prefix = f"{number}." if len(accesses) > 1 else ""
            y = _phase(canvas, each, phase, f"phase {prefix}{place}", y)
    return canvas.svg()


def _phase(canvas: Canvas, each: Access, phase: Phase, title: str, y: float) -> float:
    """Draws one phase and returns the top of the next."""
    width, height, left = 30.0, 18.0, PAD + 2.4 * _HEAD
    askers: dict[int, list[int]] = {}
    for lane in phase.lanes:
        first = each.addresses[lane] // WORD_BYTES
        last = (each.addresses[lane] + each.width_bytes - 1) // WORD_BYTES
        for word in range(first, last + 1):
            askers.setdefault(word, []).append(lane)
    for wavefront in range(phase.wavefronts):
        late = wavefront >= phase.ideal_wavefronts
        label = title if wavefront == 0 else "again"
        canvas.text(left - 6, y + height * 0.68, label, size=9, fill=WARNING if late else FAINT, anchor="end")
        for bank, words in enumerate(phase.words):
            x = left + bank * width
            if wavefront >= len(words):
                canvas.cell(x, y, width, height, UNUSED)
                continue
            lanes = askers[words[wavefront]]
            shown = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}-{lanes[-1]}"
            canvas.cell(x, y, width, height, color_of(lanes[0], 32, 4), shown,
                        f"bank {bank}, word {words[wavefront]}: lanes {', '.join(map(str, lanes))}")  # fmt: skip
        y += height
    return y + 8
