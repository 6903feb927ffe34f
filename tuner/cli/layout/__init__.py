"""`gemmtune layout …`: who owns which element, which bank, which bits; as tables, JSON and SVG."""

from __future__ import annotations

import typer

from tuner.cli.layout import memory, registers, words

app = typer.Typer(
    no_args_is_help=True,
    help="Layouts behind the kernels: swizzles, fragments, descriptors, TMA boxes, bank conflicts.",
)
app.command()(memory.swizzle)
app.command()(registers.fragment)
app.command()(registers.scales)
app.command()(words.descriptor)
app.command()(words.instruction)
app.command()(memory.boxes)
app.command()(memory.banks)
