"""Options of commands that read problems from files of any known format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.cli.output import notes
from tuner.tables.importers import shapes_of
from tuner.tables.importers.source import Asked
from tuner.tables.problems import rows_of
from tuner.tables.shapes import Shapes

Sources = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Files: CSV or JSON lists, tables, TunableOp's CSV, torch profiler traces, logs of vLLM or SGLang, "
        "CUTLASS problems, Hugging Face's config.json."
    ),
]
Ms = Annotated[
    str | None,
    typer.Option("--m", help="M of a model's products, as in 1..8192:x2 or 1,16,64. \\[default: 1..8192:x2]"),
]
Tp = Annotated[int, typer.Option("--tp", help="GPUs that share each layer of a model (tensor parallelism).", min=1)]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Count f32 products as tf32.")]
BlockScaledAs = Annotated[
    str,
    typer.Option(help="List an engine's block-scaled products under this dtype, as in fp8_e4m3."),
]


def asked_of(ms: str | None, tp: int, tf32: bool, block_scaled_as: str) -> Asked:
    """What the options ask of sources.

    Raises:
        ProblemError: `ms` is not a list of extents, or `block_scaled_as` is no dtype.
    """
    if block_scaled_as:
        try:
            Gemm.of(1, 1, 1, block_scaled_as)
        except ProblemError as error:
            # The line of a log that is read first is not at fault.
            raise ProblemError(f"--block-scaled-as: {error}") from error
    return Asked(tuple(rows_of(ms)) if ms else (), tp, tf32, block_scaled_as)


def shapes_told(sources: Iterable[Path], asked: Asked) -> Shapes:
    """The shapes of all files together; says what was left out, and what to know of the counts.

    Raises:
        ProblemError: a file can't be read, or no importer recognizes it.
    """
    found = shapes_of(sources, asked)
    for reason, count in found.left_out.items():
        notes.print(f"left out {count:,} ×: {reason}")
    for sentence in found.notes:
        notes.print(sentence)
    return found
