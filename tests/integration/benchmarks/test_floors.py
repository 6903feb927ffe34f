"""The kernel that only moves bytes compiles, and a block has as many threads as its launch bounds say."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kernels.floor import SOURCE as FLOOR
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
