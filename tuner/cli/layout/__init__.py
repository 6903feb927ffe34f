"""`gemmtune layout …`: elements, banks and descriptor bits of kernel layouts, as tables, JSON and SVG."""

from __future__ import annotations

from tuner.cli.commands import group
from tuner.cli.layout import memory, registers, words

app = group("Layouts of the kernels: swizzles, fragments, descriptors, TMA boxes, bank conflicts.")
app.command()(memory.swizzle)
app.command()(registers.fragment)
app.command()(registers.scales)
app.command()(words.descriptor)
app.command()(words.instruction)
app.command()(memory.boxes)
app.command()(memory.banks)
