"""toy_simt: a complete kernel family outside the packages. Three knobs, four rules, one SIMT kernel.

It shows what a family is made of, and that nothing else has to know of it: `join` registers it, `leave` takes it out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import ARCHS
from space.columns import Columns, Derived, FloatColumn
from space.config import Config
from space.devices import DeviceProfile
from space.families.common import epilogue_constants
from space.kinds.gemm import Gemm
from space.knobs import Knob, KnobValue
from space.plug import Family
from space.problem import DTYPE_BYTES
from space.registry import register, unregister
from space.rules import Rule

#: A thread computes 4 x 4 elements of C.
THREAD_ROWS: Final = 4
#: f32 operations that one multiprocessor starts in a clock, and the share of them that a simple loop gets.
FLOPS_PER_CLOCK, SHARE = 256, 0.25

KNOBS: Final = (
    Knob("tile_m", (16, 32, 64, 128), 64, "compile", "rows of C that a block computes"),
    Knob("tile_n", (16, 32, 64, 128), 64, "compile", "columns of C that a block computes"),
    Knob("tile_k", (8, 16, 32, 64), 16, "compile", "elements of K that a block stages in shared memory at a time"),
)
DERIVED: Final = (
    Derived("threads", ("tile_m", "tile_n"), lambda c: c["tile_m"] * c["tile_n"] // THREAD_ROWS**2, True,
            "threads of a block"),
    Derived("shared_memory_bytes", ("tile_m", "tile_n", "tile_k"),
            lambda c: 4 * (c["tile_m"] + c["tile_n"]) * (c["tile_k"] + 1), True, "staged A and B, as f32, padded"),
    Derived("tiles", ("tile_m", "tile_n"),
            lambda c: -(-c.problem.m // c["tile_m"]) * -(-c.problem.n // c["tile_n"]) * c.problem.batch, False,
            "blocks of a launch"),
)  # fmt: skip


def _one(c: Columns, name: str) -> int:
    return int(c[name][0])


RULES: Final = (
    Rule("toy.dtype", "operands are 16-bit floats", "tests/toy_family/kernel", (),
         lambda c: c.problem.dtype_a in ("bf16", "fp16"), lambda c: f"A is {c.problem.dtype_a}"),
    Rule("toy.layout", "A and B lie along K", "tests/toy_family/kernel", (),
         lambda c: c.problem.layout == "nt", lambda c: f"layout {c.problem.layout}; use nt"),
    Rule("toy.threads", "a block has 32 to 1,024 threads", "CUDA C++ Programming Guide, compute capabilities",
         ("threads",), lambda c: (c["threads"] >= 32) & (c["threads"] <= c.arch.threads_per_block),
         lambda c: f"{_one(c, 'threads')} threads"),
    Rule("toy.smem", "staged operands fit the shared memory that needs no opt-in",
         "CUDA C++ Programming Guide, compute capabilities: 48 KiB", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_static_bytes,
         lambda c: f"{_one(c, 'shared_memory_bytes'):,} B > {c.arch.smem_static_bytes:,} B"),
)  # fmt: skip


def estimate_us(c: Columns, device: DeviceProfile) -> FloatColumn:
    """Waves of blocks at a quarter of the f32 rate; larger tiles read shared memory less often."""
    waves = np.ceil(c["tiles"] / device.sm_count)
    flops = 2.0 * c["tile_m"] * c["tile_n"] * c.problem.k
    reads = 1 + 8 / c["tile_m"] + 8 / c["tile_n"] + 2 / c["tile_k"]
    total: FloatColumn = waves * flops * reads / (FLOPS_PER_CLOCK * SHARE * device.clock_ghz * 1e3) + device.launch_us
    return total


def problem_constants(problem: Gemm, config: Config) -> dict[str, KnobValue]:
    """What the kernel's `Config` takes from the problem."""
    constants: dict[str, KnobValue] = {
        "input": problem.dtype_a, "output": problem.dtype_c, "element_bytes": DTYPE_BYTES[problem.dtype_a],
        "integers": 0, "swap_ab": 0,
    }  # fmt: skip
    return constants | epilogue_constants(problem)


TOY: Final = Family(
    "toy_simt", frozenset(ARCHS), KNOBS, DERIVED, RULES, estimate_us, problem_constants=problem_constants,
    grounded=False, structure=("tile_m", "tile_n"), kernel="tests.toy_family.kernel",
    launcher="tests.toy_family.launcher",
)  # fmt: skip


def join() -> None:
    """Registers the family."""
    register(TOY, "tests.toy_family.plugin")


def leave() -> None:
    """Takes it out again."""
    unregister(TOY)
