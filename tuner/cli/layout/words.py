"""`gemmtune layout descriptor` and `instruction`: encode and decode descriptors."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from space.errors import LayoutError
from space.layouts.operand import OperandTile
from space.layouts.swizzle import swizzle_named
from space.layouts.tcgen05_instruction import KINDS, Tcgen05Instruction, kind_named
from tuner.cli.layout.options import (
    BYTES,
    ElementType,
    MajorText,
    Mode,
    Svg,
    draw,
    major_from,
    number_from,
    pair_from,
)
from tuner.cli.options import Json
from tuner.cli.output import console, emit, table
from tuner.views import layouts
from tuner.views.layouts import DESCRIPTORS


def descriptor(
    word: Annotated[str, typer.Argument(help="64-bit word to decode, as in 0x4000004000010000.")] = "",
    target: Annotated[str, typer.Option("--for", help="wgmma or tcgen05.")] = "wgmma",
    start: Annotated[str, typer.Option(help=f"Shared-memory address of the first element. {BYTES}")] = "0",
    leading: Annotated[str, typer.Option(help=f"Leading-dimension byte offset. {BYTES}")] = "16",
    stride: Annotated[str, typer.Option(help=f"Stride-dimension byte offset. {BYTES}")] = "1024",
    mode: Mode = "128B",
    base_offset: Annotated[int, typer.Option(help="0 to 7.")] = 0,
    tile: Annotated[str, typer.Option(help="MNxK: operand tile that determines the strides and the start.")] = "",
    dtype: ElementType = "bf16",
    major: MajorText = "k",
    at: Annotated[str, typer.Option(help="MN,K of the descriptor's first element in the tile.")] = "0,0",
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Encodes or decodes a shared-memory matrix descriptor of wgmma or tcgen05.

    Takes a word, the fields, or an operand tile: `--tile 128x64 --at 0,16 --start 0x400`.
    """
    if target not in DESCRIPTORS:
        raise LayoutError(f"--for {target!r} is unknown: use {' or '.join(DESCRIPTORS)}")
    kind = DESCRIPTORS[target]
    if word:
        made = kind.decode(number_from("word", word))
    elif tile:
        operand = OperandTile(*pair_from("tile", tile, "x"), dtype, major_from(major), swizzle_named(mode))
        build = operand.wgmma_descriptor if target == "wgmma" else operand.tcgen05_descriptor
        made = build(number_from("start", start), *pair_from("at", at, ","))
    else:
        made = kind(
            number_from("start", start), number_from("leading", leading), number_from("stride", stride),
            swizzle_named(mode), base_offset,
        )  # fmt: skip
    drawn = layouts.descriptor(target, made)
    draw(svg, drawn.svg)
    _say_word(f"{target} descriptor", drawn.document, as_json)


def instruction(
    word: Annotated[str, typer.Argument(help="32-bit word to decode; without it, encode.")] = "",
    kind: Annotated[str, typer.Option(help=f"{', '.join(KINDS)}.")] = "f16",
    m: Annotated[int, typer.Option(help="Rows of D.")] = 128,
    n: Annotated[int, typer.Option(help="Columns of D.")] = 256,
    dtype_a: Annotated[str, typer.Option(help="Type of A. \\[default: the kind's first]")] = "",
    dtype_b: Annotated[str, typer.Option(help="Type of B. \\[default: the type of A]")] = "",
    dtype_d: Annotated[str, typer.Option(help="Type of D. \\[default: f32; s32 for i8]")] = "",
    major_a: MajorText = "k",
    major_b: MajorText = "k",
    scale_dtype: Annotated[str, typer.Option(help="ue8m0 or ue4m3. \\[default: the kind's first]")] = "",
    sf_id_a: Annotated[int, typer.Option(help="First byte of A's scale factors.")] = 0,
    sf_id_b: Annotated[int, typer.Option(help="First byte of B's scale factors.")] = 0,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Encodes or decodes the 32-bit instruction descriptor of tcgen05.mma."""
    facts = kind_named(kind)
    if word:
        made = Tcgen05Instruction.decode(number_from("word", word), kind)
    else:
        a = dtype_a or next(iter(facts.inputs))
        made = Tcgen05Instruction(
            kind, m, n, a, dtype_b or a, dtype_d or ("s32" if kind == "i8" else "f32"),
            major_from(major_a), major_from(major_b),
            scale_dtype=scale_dtype or next(iter(facts.scales), ""), sf_id_a=sf_id_a, sf_id_b=sf_id_b,
        )  # fmt: skip
    drawn = layouts.instruction(kind, made)
    draw(svg, drawn.svg)
    _say_word(f"instruction descriptor of kind::{kind}", drawn.document, as_json)


def _say_word(what: str, document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(document)
        return
    console.print(f"{what}: {document['word']}")
    table(("field", "value"), list(document["fields"].items()))
