"""The kernel that only reads: it compiles, and the benchmark knows its pieces."""

from __future__ import annotations

from benchmarks.kernels.read_only import SOURCE as READ_ONLY
from benchmarks.read_only import PIECE_BYTES, RINGS
from space.arch import ARCHS
from workers.build import Build, compile_source

SOURCE = READ_ONLY.render()


def test_it_compiles() -> None:
    built = compile_source(SOURCE, "sm_90a", None)
    assert isinstance(built, Build), built
    assert built.warnings == ()


def test_the_benchmark_cuts_memory_as_the_kernel_does() -> None:
    assert f"constexpr int kPieceBytes = {PIECE_BYTES};" in SOURCE


def test_rings_fit_shared_memory_and_two_of_the_smaller_a_multiprocessor() -> None:
    largest, smaller = (ring * PIECE_BYTES for ring in RINGS)
    assert largest <= ARCHS["sm_90a"].smem_per_block_bytes < 2 * largest
    assert 2 * smaller < ARCHS["sm_90a"].smem_per_block_bytes
