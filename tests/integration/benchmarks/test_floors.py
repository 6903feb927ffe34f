"""The kernels that only move bytes and only multiply compile; a block has as many threads as its launch bounds say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kernels.floor import SOURCE as FLOOR
from benchmarks.kernels.wgmma_rate import rate_source
from space.kinds.gemm import Gemm
from workers.build import Build, compile_source

SOURCE = FLOOR.render()


def test_it_compiles() -> None:
    built = compile_source(SOURCE, "sm_90a", None)
    assert isinstance(built, Build), built
    assert built.warnings == ()


def test_the_benchmark_launches_as_many_threads_as_the_bounds_say() -> None:
    # Read, not imported: the benchmark needs torch.
    assert "\nTHREADS: Final = 512\n" in Path("benchmarks/floors.py").read_text(encoding="utf-8")
    assert "__launch_bounds__(512) move_bytes" in SOURCE


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp8_e4m3", "int8"])
def test_what_only_multiplies_compiles_for_each_dtype(dtype: str) -> None:
    built = compile_source(rate_source(Gemm.parse("512x512x512", dtype)), "sm_90a", None)
    assert isinstance(built, Build), built
    assert built.warnings == ()


def test_the_benchmark_counts_as_much_as_a_step_multiplies() -> None:
    loop, counted = rate_source(Gemm.parse("512x512x512")), Path("benchmarks/floors.py").read_text(encoding="utf-8")
    assert "\nWARPGROUPS, STEP_BYTES = 2, 128\n" in counted
    assert "constexpr int kRateWarpgroups = 2;" in loop
    assert "constexpr int kLineBytes = 128, kStepBytes = 32;" in loop
    assert "constexpr int kInstructionN = 256;" in loop
