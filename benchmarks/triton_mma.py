"""A plain product in Triton, compiled to `mma.sync`: what a Triton user gets from the instruction of Ampere on Hopper.

Triton picks `wgmma` on Hopper; with `DISABLE_MMA_V3=1` in its environment it takes `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
import triton.language as tl

from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES

#: Rows, columns and warps of a tile, and bytes of K and number of its stages: what suits large products.
TILES: Final = ((128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 128, 8))
STAGES: Final = ((64, 4), (128, 3))
GROUP_M: Final = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """One set of Triton's meta-parameters; `k` counts elements."""

    m: int
    n: int
    k: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}, {self.warps} warps, {self.stages} stages"


# Triton compiles annotations too, and knows its own only.
@triton.jit  # type: ignore[untyped-decorator]
def product(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k,  # noqa: ANN001
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, group: tl.constexpr, sums: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·Bᵀ: A of [m, k], B of [n, k], C of [m, n], all dense; extents are multiples of the tile's."""
    tiles_m, tiles_n = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    index = tl.program_id(0)
    first = index // (group * tiles_n) * group
    rows_in_group = min(tiles_m - first, group)
    inside = index % (group * tiles_n)
    row = (first + inside % rows_in_group) * tile_m + tl.arange(0, tile_m)
    column = (inside // rows_in_group) * tile_n + tl.arange(0, tile_n)
    depth = tl.arange(0, tile_k)
    from_a = a + row[:, None] * k + depth[None, :]
    from_b = b + column[None, :] * k + depth[:, None]
    total = tl.zeros((tile_m, tile_n), dtype=sums)
    for _ in range(0, k, tile_k):
        total = tl.dot(tl.load(from_a), tl.load(from_b), total, out_dtype=sums)
        from_a += tile_k
        from_b += tile_k
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty))


def tiles(problem: Gemm) -> Iterator[Tile]:
    """What is tried."""
    bytes_ = DTYPE_BYTES[problem.dtype_a]
    for tile_m, tile_n, warps in TILES:
        for k_bytes, stages in STAGES:
            yield Tile(tile_m, tile_n, k_bytes // bytes_, warps, stages)


def launch(problem: Gemm, tile: Tile, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:  # noqa: ANN401
    """Enqueues the product; returns the compiled kernel.

    Args:
        a, b, c: of [M, K], [N, K] and [M, N].
    """
    sums = tl.int32 if problem.dtype_acc == "s32" else tl.float32
    grid = (triton.cdiv(problem.m, tile.m) * triton.cdiv(problem.n, tile.n),)
    return product[grid](
        a, b, c, problem.m, problem.n, problem.k, tile.m, tile.n, tile.k, GROUP_M, sums,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def instruction_of(kernel: Any) -> str:  # noqa: ANN401
    """Which tensor-core instructions a compiled kernel has."""
    ptx = kernel.asm["ptx"]
    return "wgmma" if "wgmma.mma_async" in ptx else "mma.sync" if "mma.sync" in ptx else "none"
