"""Drawings of descriptors: every bit of a word, one colour per field."""

from __future__ import annotations

from typing import Final

from space.layouts.bitfields import Field
from space.layouts.draw.canvas import FAINT, INK, PAD, UNUSED, Canvas, color_of

_BIT: Final = (30.0, 26.0)
_A_LINE: Final = 32


def word_svg(title: str, fields: tuple[Field, ...], word: int, bits: int, values: dict[str, str]) -> str:
    """The bits of a word, highest first, 32 per line; `values` describes the value of each field."""
    canvas = Canvas(title, f"{word:#0{bits // 4 + 2}x}; reserved bits are grey")
    width, height = _BIT
    for line in range(bits // _A_LINE):
        y = canvas.top + 20 + line * (height + 30)
        for place in range(_A_LINE):
            bit = bits - 1 - line * _A_LINE - place
            owner = next((number for number, field in enumerate(fields) if field.low <= bit <= field.high), None)
            fill = UNUSED if owner is None else color_of(owner, len(fields))
            hint = "reserved" if owner is None else fields[owner].name
            canvas.text(PAD + (place + 0.5) * width, y - 5, str(bit), size=8, fill=FAINT, anchor="middle")
            canvas.cell(PAD + place * width, y, width, height, fill, str(word >> bit & 1), hint, size=12)
    y = canvas.top + 20 + bits // _A_LINE * (height + 30)
    for number, field in enumerate(fields):
        canvas.cell(PAD, y, 16, 16, color_of(number, len(fields)))
        text = f"{field.low}-{field.high}  {field.name} = {field.of(word)}"
        canvas.text(PAD + 24, y + 12, text, size=11, fill=INK)
        canvas.text(PAD + 330, y + 12, values.get(field.name, field.meaning), size=11, fill=FAINT)
        y += 21
    return canvas.svg()
