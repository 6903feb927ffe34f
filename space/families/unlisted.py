"""Kernels of cuBLASLt that its heuristic doesn't list, priced as if they were ours.

Its `wgmma` kernels for Hopper are one algorithm with attributes much like our knobs. On an H200,
`cublasLtMatmulAlgoCheck` of version 13.1 accepts 11,448 combinations of 423 tiles, 8 custom options and 9 clusters for
a bf16 product, each with any split of K; the heuristic lists 8 of them. The estimate of `sm90_wgmma` orders them all
(docs/kernels/search.md says how well).

NVIDIA documents no meaning of a custom option. Which tiles an option takes, and how fast it is with them, says that its
lowest bit is the side of a tile on which the 64 rows of an instruction lie, the next one the raster, and the third
whether consumers split a tile or take turns with tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from space.columns import IntColumn, IntTable
from space.devices import DeviceProfile
from space.families.common import input_bytes
from space.families.sm90_wgmma import SM90_WGMMA
from space.families.sm90_wgmma.derive import BARRIER_BYTES_PER_STAGE
from space.families.sm90_wgmma.knobs import EPILOGUE_DIRECT, SCHEDULE_COOPERATIVE, SCHEDULE_PINGPONG
from space.families.sm90_wgmma.worth import MIN_SLICE_STAGES
from space.instructions import wgmma
from space.kinds.gemm import Gemm

#: CUBLASLT_ALGO_CONFIG_ID of these kernels in version 13.
WGMMA_KERNELS: Final = 66
#: Bits of a custom option.
TRANSPOSED, OTHER_RASTER, COOPERATIVE = 1, 2, 4
#: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: slices of K leave sums in the workspace.
SUMS_IN_WORKSPACE: Final = 2
#: Bytes of K that a stage holds, theirs as ours.
STAGE_K_BYTES: Final = 128
#: Most columns of a tile that ours may have, and most rows of one that belongs to a single consumer.
MOST_COLUMNS, MOST_ROWS_ALONE = 256, 128
#: Consumers of a tile of up to so many rows are as many as its blocks of 64 rows; others have two.
MOST_ROWS_SPLIT, CONSUMERS = 192, 2
MOST_STAGES: Final = (2, 16)
#: Slices of K fill the GPU at most this many times.
SLICES_FILL: Final = 1.3

#: (rows, columns) by the library's number of a tile or a cluster. It computes C transposed: its rows are our columns.
Shapes = Mapping[int, tuple[int, int]]


def expected_order(problem: Gemm, device: DeviceProfile, tiles: Shapes, clusters: Shapes) -> Iterator[dict[str, int]]:
    """What tells one kernel from another, as knobs of `cublaslt`, the fastest expected first.

    The library has checked none of them, and has no kernel for some. Left out are tiles that none of ours may have.
    """
    numbers, knobs = _like_ours(problem, device, tiles, clusters)
    columns = SM90_WGMMA.rows_of(problem, _table(problem, device, knobs), device)
    for row in np.argsort(SM90_WGMMA.estimate_us(columns, device), kind="stable"):
        tile, custom, cluster, split_k = (int(number) for number in numbers[row])
        reduction = SUMS_IN_WORKSPACE if split_k > 1 else 0
        for option in (custom, custom | OTHER_RASTER):
            yield {"tile": tile, "custom": option, "cluster": cluster, "split_k": split_k, "reduction": reduction}


def _like_ours(
    problem: Gemm, device: DeviceProfile, tiles: Shapes, clusters: Shapes
) -> tuple[IntTable, dict[str, IntColumn]]:
    """The library's tile, custom option, cluster and split of K, a row a kernel, and knobs of one of ours like each."""
    knob = SM90_WGMMA.knob_named
    sides = set(knob["cluster_m"].domain)
    found = [
        (tile, custom, cluster, custom & TRANSPOSED, m, n, *_turned(custom, clusters[cluster]))
        for tile, shape in tiles.items()
        for custom in (0, TRANSPOSED, COOPERATIVE, COOPERATIVE | TRANSPOSED)
        for m, n in (_turned(custom, shape),)
        if m in knob["tile_m"].domain and n <= MOST_COLUMNS and (custom & COOPERATIVE or m <= MOST_ROWS_ALONE)
        for cluster in clusters
        if sides.issuperset(clusters[cluster])
    ]
    splits = np.array(knob["split_k"].domain)
    table = np.repeat(np.array(found), len(splits), axis=0)
    split_k = np.tile(splits, len(found))
    tile, custom, cluster, swap_ab, m, n, cluster_m, cluster_n = table.T
    rows, columns = (np.where(swap_ab == 1, *pair) for pair in ((problem.n, problem.m), (problem.m, problem.n)))
    blocks = -(-rows // m) * -(-columns // n) * problem.batch * split_k
    stages = -(-problem.k * input_bytes(problem) // STAGE_K_BYTES) // split_k
    kept = (split_k == 1) | (blocks <= SLICES_FILL * device.sm_count) & (stages >= MIN_SLICE_STAGES)
    knobs = {
        "swap_ab": swap_ab, "tile_m": m, "tile_n": n, "cluster_m": cluster_m, "cluster_n": cluster_n,
        "split_k": split_k, "schedule": np.where(custom & COOPERATIVE, SCHEDULE_COOPERATIVE, SCHEDULE_PINGPONG),
    }  # fmt: skip
    numbers = np.column_stack([tile, custom, cluster, split_k])[kept]
    return numbers, {name: column[kept] for name, column in knobs.items()}


def _turned(custom: int, shape: tuple[int, int]) -> tuple[int, int]:
    """A shape of the library as the kernel of ours has it, with rows for columns where that is not transposed."""
    rows, columns = shape
    return (rows, columns) if custom & TRANSPOSED else (columns, rows)


def _table(problem: Gemm, device: DeviceProfile, like: dict[str, IntColumn]) -> IntTable:
    """Configs of ours with these knobs, a row each, with the consumers and stages that such tiles mostly have."""
    m, n, schedule = like["tile_m"], like["tile_n"], like["schedule"]
    stage_bytes = (m + n) * STAGE_K_BYTES + BARRIER_BYTES_PER_STAGE
    stages = np.clip(device.arch.smem_per_block_bytes // stage_bytes, *MOST_STAGES)
    consumers = np.where((schedule == SCHEDULE_COOPERATIVE) & (m <= MOST_ROWS_SPLIT), m // wgmma.M, CONSUMERS)
    tile_k = np.full_like(m, STAGE_K_BYTES // input_bytes(problem))
    epilogue = np.full_like(m, EPILOGUE_DIRECT)
    known = like | {
        "consumer_warpgroups": consumers, "stages": stages, "tile_k": tile_k, "epilogue": epilogue
    }
    usual = {knob.name: np.full_like(m, knob.encode(knob.default)) for knob in SM90_WGMMA.knobs}
    return np.column_stack(list((usual | known).values()))
