"""`gemmtune layout fragment` and `scales`: operands in registers, scale factors in tensor memory."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.named import EXAMPLES
from tuner.cli.layout.options import Svg, draw
from tuner.cli.options import Json
from tuner.cli.output import console, emit, table
from tuner.views import layouts

#: Most registers and threads in a table; a line below it counts the rest.
_MOST_REGISTERS: Final = 8
_MOST_THREADS: Final = 32


def fragment(
    instruction: Annotated[str, typer.Argument(help=f"As in {', '.join(EXAMPLES)}.")],
    operand: Annotated[str, typer.Option(help="A, B, C or D.")] = "D",
    dtype: Annotated[str, typer.Option(help="Operand type. \\[default: f32 for C and D, bf16 for A and B]")] = "",
    thread: Annotated[int | None, typer.Option(help="Show only this thread, with all its registers.")] = None,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Shows which thread and register hold each element of an operand."""
    made, drawn = layouts.fragment(instruction, operand, dtype, thread)
    draw(svg, drawn.svg)
    if as_json:
        emit(drawn.document)
    else:
        _print_fragment(made, thread)


def scales(
    vector: Annotated[str, typer.Option(help="1X, 2X or 4X, as in .scale_vec::2X.")] = "1X",
    rows: Annotated[int, typer.Option(help="M of A, or N of B.")] = 128,
    sf_id: Annotated[int, typer.Option("--sf-id", help="First byte of the factors within the word.")] = 0,
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Shows where block-scaled tcgen05.mma reads its scale factors in tensor memory."""
    made, drawn = layouts.scales(vector, rows, sf_id)
    draw(svg, drawn.svg)
    if as_json:
        emit(drawn.document)
        return
    console.print(f"scale_vec::{made.vector} of {rows} rows: {made.columns} columns of 32 bits, lanes copied 4 times")
    lines = [place | {"lanes": ", ".join(map(str, place["lanes"]))} for place in drawn.document["factors"]]
    table(tuple(lines[0]), [tuple(line.values()) for line in lines])


def _print_fragment(made: Fragment, thread: int | None) -> None:
    several = f"{made.matrices} matrices of " if made.matrices > 1 else ""
    packed = made.elements_per_register
    console.print(f"{made.name}: {several}{made.rows} x {made.columns}, {made.threads} threads, {made.registers} "
                  f"registers each, {packed} element{'s' * (packed > 1)} per register")  # fmt: skip
    console.print(f"  {made.source}")

    def cell(owner: int, register: int) -> str:
        first = register * made.elements_per_register
        places = range(first, min(first + made.elements_per_register, made.elements))
        return " ".join(_place(made, owner, element) for element in places)

    if thread is not None:
        table(("register", "matrix, row, column" if made.matrices > 1 else "row, column"),
              [(register, cell(thread, register)) for register in range(made.registers)])  # fmt: skip
        return
    shown = min(made.registers, max(_MOST_REGISTERS // made.elements_per_register, 1))
    threads = min(made.threads, _MOST_THREADS)
    table(("thread", *(f"r{register}" for register in range(shown))),
          [(owner, *(cell(owner, register) for register in range(shown))) for owner in range(threads)])  # fmt: skip
    if (shown, threads) != (made.registers, made.threads):
        console.print(f"{made.registers - shown} more registers and {made.threads - threads} more threads: "
                      f"--thread, --svg or --json show them")  # fmt: skip


def _place(made: Fragment, owner: int, element: int) -> str:
    matrix, row, column = (int(array[owner, element]) for array in (made.matrix, made.row, made.column))
    return f"({matrix}: {row},{column})" if made.matrices > 1 else f"({row},{column})"
