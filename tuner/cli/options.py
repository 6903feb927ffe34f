"""Options that several commands share, with one meaning each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from space.arch import arch_named
from space.devices import DeviceProfile, profile_named, reference_profile
from space.kinds.gemm import Gemm
from space.problem import Problem

# Imported by commands that open a store; `explain`, `space` and `layout` start faster without.
if TYPE_CHECKING:
    from tuner.evidence.store import Store
    from tuner.fleet.campaigns.records import Timing
    from tuner.settings import Settings

Shape = Annotated[str, typer.Argument(metavar="MxNxK", help="Extents of C[M,N] = A·B over K, as in 4096x4096x4096.")]
Dtype = Annotated[str, typer.Option(help="dtype of A and B, which implies those of C and the accumulator.")]
Layout = Annotated[str, typer.Option(help="nt: A[M,K], B[N,K]; nn: A[M,K], B[K,N]; tn: A[K,M], B[K,N].")]
Batch = Annotated[int, typer.Option(min=1, help="Number of independent products of this shape.")]
Epilogue = Annotated[str, typer.Option(help="none; or alpha, beta, bias, activation in this order, joined by +.")]
Device = Annotated[str, typer.Option(help="auto, cuda:0 or recorded:h200.")]
DeviceName = Annotated[str, typer.Option("--device", help="GPU model, as in 'NVIDIA H200' or 'L40S'.")]
ArchName = Annotated[
    str | None, typer.Option("--arch", help="Compile target, as in sm_90a; implies its reference card, not --device.")
]
Db = Annotated[str | None, typer.Option(help="Store: a SQLite file or a SQLAlchemy URL. [default: GEMMTUNE_DB]")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
Out = Annotated[Path, typer.Option(help="File to write.")]
NoRule = Annotated[
    list[str] | None,
    typer.Option("--no-rule", metavar="ID", help="Worth rule to disable, by its id in `gemmtune space`; repeatable."),
]
ConfigText = Annotated[str, typer.Option("--config", help="knob=value,…; missing knobs take their defaults.")]


def problem_from(shape: str, dtype: str, layout: str, batch: int = 1, epilogue: str = "none") -> Problem:
    """The problem that a command's arguments describe."""
    return Gemm.parse(shape, dtype, layout, batch, epilogue)


def profile_from_words(device: str, arch: str | None) -> DeviceProfile:
    """The device that `--device` names, or the one that stands for `--arch`.

    Raises:
        SpaceError: no such device or arch.
    """
    return reference_profile(arch_named(arch).name) if arch else profile_named(device)


def open_store(db: str | None, create: bool = True) -> Store:
    """Opens the store that `--db` or the settings name."""
    from tuner.evidence.store import Store
    from tuner.settings import database_url, settings

    return Store.open(database_url(db) if db else settings().db_url, create=create)


def timing_of(config: Settings) -> Timing:
    """Heartbeat interval and round length from the settings."""
    from tuner.fleet.campaigns.records import Timing

    return Timing(heartbeat_seconds=config.heartbeat_seconds, round_seconds=config.round_seconds)
