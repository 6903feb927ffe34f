"""A kernel that multiplies as much as a product and moves nothing: a bound on all that multiply by wgmma."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from space.kinds.gemm import Gemm
from workers.kernels.sm90_wgmma.mma_async import wgmma_mma_async
from workers.kernels.source import KernelSource

#: Columns of the instruction: the widest, which reads the least of A for each product.
COLUMNS: Final = 256
SOURCE: Final = KernelSource(
    "wgmma_rate/entry.cuh",
    root=Path(__file__).parents[1],
    not_members=frozenset({"input_a", "input_b", "a_source", "a_mn_major", "b_mn_major"}),
    generate=lambda constants: {"ptx/wgmma_mma_async.cuh": wgmma_mma_async(constants)},
)


def rate_source(problem: Gemm) -> str:
    """The text of the loop for a problem's dtypes."""
    return SOURCE.render({
        "input_a": problem.dtype_a, "input_b": problem.dtype_b, "integers": int(problem.dtype_acc == "s32"),
        "instruction_n": COLUMNS, "a_source": "smem", "a_mn_major": 0, "b_mn_major": 0,
    })  # fmt: skip
