"""The kernels that dump layouts compile with NVRTC, each as the one instruction that it is about."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from space.instructions.wgmma import WGMMA
from space.layouts.fragments.mma_sync import ACCUMULATORS, SHAPES
from tests.layout_dump.sources import matrix_moves_source, mma_sync_source, tma_source, wgmma_source
from workers.build import Build, compile_source

ARCH = "sm_90a"


def mma_sources() -> dict[str, str]:
    made = {
        f"{shape} {dtype} {accumulator}": mma_sync_source(shape, dtype, accumulator)
        for dtype, shapes in SHAPES.items()
        if not dtype.startswith(("fp6", "fp4"))
        for shape in shapes
        for accumulator in ACCUMULATORS[dtype]
    }
    legacy = {f"m8n8k4 {a}{b}": mma_sync_source((8, 8, 4), "fp16", "f32", a_col=a, b_col=b)
              for a in (False, True) for b in (False, True)}  # fmt: skip
    return made | legacy


def wgmma_sources() -> dict[str, str]:
    made = {}
    for row in WGMMA:
        types = f"{row.dtype_a} {row.dtype_b} {row.dtype_acc}"
        for n in (row.n[0], row.n[5], row.n[-1]):
            made[f"{types} {n}"] = wgmma_source(row, n)
            made[f"{types} {n} registers"] = wgmma_source(row, n, a_in_registers=True)
        if row.transposes:
            made[f"{types} transposed"] = wgmma_source(row, 64, trans_a=1, trans_b=1)
            made[f"{types} transposed registers"] = wgmma_source(row, 64, a_in_registers=True, trans_b=1)
    return made


@pytest.mark.parametrize(
    "sources",
    [{"moves": matrix_moves_source(), "tma": tma_source()}, mma_sources(), wgmma_sources()],
    ids=["moves", "mma.sync", "wgmma"],
)
def test_every_dump_kernel_compiles_without_spills_or_warnings(sources: dict[str, str]) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda text: compile_source(text, ARCH, None), sources.values()))
    failures = {name: made for name, made in zip(sources, built, strict=True)
                if not isinstance(made, Build) or made.warnings}  # fmt: skip
    assert failures == {}
