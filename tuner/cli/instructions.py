"""`gemmtune instructions`: the tensor-core instructions of an arch."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, TypeAlias

import typer

from space.arch import Arch, arch_named
from space.devices import DEFAULT_DEVICE, known_names, profile_named
from space.instructions.mma_sync import MMA_SYNC, MmaSync
from space.instructions.tcgen05 import TCGEN05, Tcgen05
from space.instructions.wgmma import WGMMA, M, Wgmma
from tuner.cli.options import Json
from tuner.cli.output import console, emit, table
from tuner.tables.entries import fields

Row: TypeAlias = Wgmma | MmaSync | Tcgen05

_NAMES: Final[dict[type[Row], str]] = {Wgmma: "wgmma", MmaSync: "mma.sync", Tcgen05: "tcgen05.mma"}


def instructions(
    arch: Annotated[str | None, typer.Option(help="Compile target, as in sm_90a. \\[default: the H200's]")] = None,
    as_json: Json = False,
) -> None:
    """Lists an arch's limits and its tensor-core instructions: dtypes, shapes, major modes, source."""
    target = arch_named(arch) if arch else profile_named(DEFAULT_DEVICE).arch
    everything: tuple[Row, ...] = (*WGMMA, *TCGEN05, *MMA_SYNC)
    rows = [row for row in everything if target.name in row.archs]
    if as_json:
        models = [{"name": name, "sm_count": count} for name, count in _cards(target)]
        emit({"arch": target.name, "limits": target, "models": models, "instructions": [_json(row) for row in rows]})
        return
    _print_limits(target)
    columns = ("instruction", "A and B, any of", "accumulator", "m", "n", "k", "majors", "also")
    table(columns, [_line(row, dtypes) for row, dtypes in _groups(rows)])
    for source in dict.fromkeys(row.source for row in rows):
        console.print(source)


def _print_limits(arch: Arch) -> None:
    console.print(
        f"{arch.name}: a block has up to {arch.smem_per_block_bytes:,} B of shared memory, {arch.threads_per_block:,} "
        f"threads and {arch.registers_per_block:,} registers, "
        + (f"a cluster up to {arch.cluster_portable} blocks" if arch.cluster_portable > 1 else "there are no clusters")
        + (f" ({arch.cluster_largest} where the device allows it)" if arch.cluster_largest > arch.cluster_portable
           else "")
        + (f"; {arch.tmem_columns} columns of tensor memory" if arch.tmem_columns else "")
    )  # fmt: skip
    models = [f"{name} ({count} SMs)" for name, count in _cards(arch)]
    console.print(f"for example {', '.join(models)}")


def _cards(arch: Arch) -> list[tuple[str, int]]:
    """Known cards of an arch, with their multiprocessors."""
    profiles = [profile_named(name) for name in known_names()]
    return [(profile.name, profile.sm_count) for profile in profiles if profile.arch == arch]


def _json(row: Row) -> dict[str, Any]:
    return {"instruction": _NAMES[type(row)], **({"m": M} if isinstance(row, Wgmma) else {}), **fields(row)}


def _groups(rows: list[Row]) -> list[tuple[Row, list[str]]]:
    """Rows that differ in the dtypes of A and B only, as one, with all those dtypes.

    Types of one group mix freely; those that do not, such as bf16 and fp16, stand apart.
    """
    together: dict[Row, list[Row]] = {}
    for row in rows:
        mixes = any(other.dtype_a == row.dtype_a != other.dtype_b for other in rows)
        key = dataclasses.replace(row, dtype_a="", dtype_b="") if mixes else row
        together.setdefault(key, []).append(row)
    return [(like[0], sorted({row.dtype_a for row in like})) for like in together.values()]


def _line(row: Row, dtypes: list[str]) -> tuple[str, ...]:
    m, n = (M, row.n) if isinstance(row, Wgmma) else (row.m, row.n)
    shape = (_extents(m), _extents(n), str(row.k))
    return (_NAMES[type(row)], " ".join(dtypes), row.dtype_acc, *shape, _majors(row), _also(row))


def _extents(values: int | tuple[int, ...]) -> str:
    """`8-256 step 8`, `8 16 24 32-256 step 16`: numbers one by one, then the steps that end the list."""
    if isinstance(values, int) or len(values) < 4:
        return str(values) if isinstance(values, int) else " ".join(map(str, values))
    step = values[-1] - values[-2]
    start = len(values) - 1
    while start and values[start] - values[start - 1] == step:
        start -= 1
    return " ".join([*map(str, values[:start]), f"{values[start]}-{values[-1]} step {step}"])


def _majors(row: Row) -> str:
    if isinstance(row, MmaSync):
        return "k"
    return " ".join(row.majors_b if isinstance(row, Wgmma) else row.majors)


def _also(row: Row) -> str:
    words = []
    if isinstance(row, Wgmma) and row.a_in_registers:
        words.append("A from registers")
    if isinstance(row, Tcgen05):
        words += [f"kind {row.kind}", f"{row.cta_group} block{'s' * (row.cta_group - 1)}"]
        words += ["weight-stationary"] * row.weight_stationary
    elif isinstance(row, MmaSync) and row.kind:
        words.append(f"kind {row.kind}")
    if not isinstance(row, Wgmma) and row.scale_vec:
        words.append(f"{row.scale_vec} {row.scale_dtype} scale{'s' * (row.scale_vec > 1)} a row")
    if not isinstance(row, Tcgen05) and row.saturates:
        words.append(".satfinite")
    return ", ".join(words)
