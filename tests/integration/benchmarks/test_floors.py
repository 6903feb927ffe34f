"""The kernels that only move bytes: they compile, and the benchmark knows their pieces."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks.kernels.floor import SOURCE as FLOOR
from space.arch import ARCHS
from workers.build import Build, compile_source

SOURCE = FLOOR.render()
#: Read, not imported: the benchmark needs torch.
CONSTANTS = {
    statement.target.id: ast.literal_eval(statement.value)
    for statement in ast.parse(Path("benchmarks/floors.py").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value
}


def test_they_compile() -> None:
    built = compile_source(SOURCE, "sm_90a", None)
    assert isinstance(built, Build), built
    assert built.warnings == ()


def test_the_benchmark_cuts_memory_as_the_kernel_does() -> None:
    assert f"constexpr int kPieceBytes = {CONSTANTS['PIECE_BYTES']};" in SOURCE
    assert f"__launch_bounds__({CONSTANTS['LOADING']}) floor_loads" in SOURCE


def test_the_rings_of_one_multiprocessor_fit_its_shared_memory() -> None:
    for blocks, ring in CONSTANTS["RINGS"].items():
        assert blocks * ring * CONSTANTS["PIECE_BYTES"] < ARCHS["sm_90a"].smem_per_block_bytes
