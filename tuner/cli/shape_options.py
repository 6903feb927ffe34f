"""Options of commands that read problems from files of any known format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.tables.importers.source import Asked
from tuner.tables.problems import numbers

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
        ProblemError: `ms` is not a list of numbers.
    """
    return Asked(tuple(numbers(f"--m {ms}", ms)) if ms else (), tp, tf32, block_scaled_as)
