"""Options of the layout commands, and the parsers of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from space.errors import LayoutError
from space.instructions.operand import Major
from space.layouts.swizzle import SWIZZLES
from tuner.files import export_file

Svg = Annotated[Path | None, typer.Option("--svg", help="Also write a drawing to this SVG file.")]
ElementType = Annotated[str, typer.Option(help="Element type, as in bf16, fp8_e4m3 or tf32.")]
Mode = Annotated[str, typer.Option("--mode", "--swizzle", help=f"{', '.join(SWIZZLES)}.")]
Rows = Annotated[int, typer.Option(help="Rows of the tile.")]
Cols = Annotated[int, typer.Option(help="Columns of the tile, contiguous in global memory.")]
BoxCols = Annotated[int | None, typer.Option(help="Columns of a TMA box. \\[default: the span; 16 B without swizzle]")]
#: Ends the help of an option that takes bytes.
BYTES: Final = "Bytes, decimal or 0x…."
#: A whole number, and spaces around it in a list: Python takes 1_0 for 10 too, and digits of any script.
_WHOLE: Final = re.compile(r" *-?(0[xX][0-9a-fA-F]{1,99}|0|[1-9][0-9]{0,99}) *")
MajorText = Annotated[str, typer.Option(help="k: K is contiguous; mn: M or N is.")]


def draw(path: Path | None, picture: Callable[[], str]) -> None:
    """Writes the picture if a path is given."""
    if path:
        export_file(path, picture().encode())


def number_from(name: str, text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise LayoutError(f"{name} = {text[:80]!r} is not a whole number: write it as in 1024 or 0x400")
    return int(text, 0)


def pair_from(name: str, text: str, by: str) -> tuple[int, int]:
    parts = text.lower().split(by)
    if len(parts) != 2:
        raise LayoutError(f"{name} = {text!r}: write two whole numbers with {by!r} between them, as in 64{by}16")
    return number_from(name, parts[0]), number_from(name, parts[1])


def major_from(text: str) -> Major:
    if text == "k":
        return "k"
    if text == "mn":
        return "mn"
    raise LayoutError(f"major {text!r} is unknown: use k or mn")
