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
from typing import Final, NamedTuple

import numpy as np

from space.arch import LINE_BYTES
from space.columns import Columns, IntColumn
from space.devices import DeviceProfile
from space.families.common import input_bytes
from space.families.sm90_wgmma import SM90_WGMMA
from space.families.sm90_wgmma.derive import BARRIER_BYTES_PER_STAGE
from space.families.sm90_wgmma.knobs import EPILOGUE_DIRECT, SCHEDULE_COOPERATIVE, SCHEDULE_PINGPONG
from space.families.sm90_wgmma.worth import slices_pay
from space.instructions import wgmma
from space.kinds.gemm import Gemm

#: CUBLASLT_ALGO_CONFIG_ID of these kernels in version 13.
WGMMA_KERNELS: Final = 66
#: Bits of a custom option.
TRANSPOSED, OTHER_RASTER, COOPERATIVE = 1, 2, 4
#: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: slices of K leave sums in the workspace.
SUMS_IN_WORKSPACE: Final = 2
#: Most rows of a tile of ours that belongs to a single consumer.
MOST_ROWS_ALONE: Final = 128
#: Consumers of a tile of up to so many rows are as many as its blocks of 64 rows; others have two.
MOST_ROWS_SPLIT, CONSUMERS = 192, 2
LEAST_STAGES, MOST_STAGES = 2, 16
#: Slices of K fill the GPU at most this many times.
SLICES_FILL: Final = 1.3

#: (rows, columns) by the library's number of a tile or a cluster. It computes C transposed: its rows are our columns.
Shapes = Mapping[int, tuple[int, int]]


class Kernel(NamedTuple):
    """A kernel of the library, with any split of K, and knobs of one of ours like it."""

    tile: int
    custom: int
    cluster: int
    swap_ab: int
    tile_m: int
    tile_n: int
    cluster_m: int
    cluster_n: int
    schedule: int


def expected_order(problem: Gemm, device: DeviceProfile, tiles: Shapes, clusters: Shapes) -> Iterator[dict[str, int]]:
    """What tells one kernel from another, as knobs of `cublaslt`, the fastest expected first.

    The library has checked none of them, and has no kernel for some. Left out are tiles that none of ours may have.
    """
    kernels = [*_kernels(tiles, clusters)]
    splits = SM90_WGMMA.knob_named["split_k"].domain
    split_k, number = (axis.ravel() for axis in np.meshgrid(np.array(splits), np.arange(len(kernels))))
    columns = _like_ours(problem, device, np.array(kernels).T[:, number], split_k)
    worth = (split_k == 1) | slices_pay(columns, SLICES_FILL)
    split_k, number, columns = split_k[worth], number[worth], columns.take(worth)
    for row in np.argsort(SM90_WGMMA.estimate_us(columns, device), kind="stable"):
        one, slices = kernels[number[row]], int(split_k[row])
        yield {
            "tile": one.tile, "custom": one.custom, "cluster": one.cluster, "split_k": slices,
            "reduction": SUMS_IN_WORKSPACE if slices > 1 else 0,
        }  # fmt: skip


def _kernels(tiles: Shapes, clusters: Shapes) -> Iterator[Kernel]:
    """The library's, where one of ours may have the tile and the cluster.

    Of the two rasters it is the one along the longer side of the cluster: the faster one in 70 % of 709 pairs, of 18
    products on an H200.
    """
    rows, columns, sides = (SM90_WGMMA.knob_named[name].domain for name in ("tile_m", "tile_n", "cluster_m"))
    usual = {number: shape for number, shape in clusters.items() if {*shape} <= {*sides}}
    for tile, shape in tiles.items():
        for custom in (0, TRANSPOSED, COOPERATIVE, COOPERATIVE | TRANSPOSED):
            turned, together = custom & TRANSPOSED, custom & COOPERATIVE
            m, n = shape if turned else shape[::-1]
            if m not in rows or n not in columns or (m > MOST_ROWS_ALONE and not together):
                continue
            schedule = SCHEDULE_COOPERATIVE if together else SCHEDULE_PINGPONG
            for cluster, (down, across) in usual.items():
                option = custom | (OTHER_RASTER if across > down else 0)
                cluster_m, cluster_n = (down, across) if turned else (across, down)
                yield Kernel(tile, option, cluster, turned, m, n, cluster_m, cluster_n, schedule)


def _like_ours(problem: Gemm, device: DeviceProfile, kernels: IntColumn, split_k: IntColumn) -> Columns:
    """One of ours like each kernel, with the consumers and stages that such tiles mostly have: stages of a line of K.

    Args:
        kernels: a row for each field of `Kernel`.
    """
    like = dict(zip(Kernel._fields, kernels, strict=True)) | {"split_k": split_k}
    m, n = like["tile_m"], like["tile_n"]
    stage_bytes = (m + n) * LINE_BYTES + BARRIER_BYTES_PER_STAGE
    split = (like["schedule"] == SCHEDULE_COOPERATIVE) & (m <= MOST_ROWS_SPLIT)
    like |= {
        "consumer_warpgroups": np.where(split, m // wgmma.M, CONSUMERS),
        "stages": np.clip(device.arch.smem_per_block_bytes // stage_bytes, LEAST_STAGES, MOST_STAGES),
        "tile_k": np.full_like(m, LINE_BYTES // input_bytes(problem)),
        "epilogue": np.full_like(m, EPILOGUE_DIRECT),
    }
    usual = {knob.name: np.full_like(m, knob.encode(knob.default)) for knob in SM90_WGMMA.knobs}
    table = np.column_stack([like.get(name, default) for name, default in usual.items()])
    return SM90_WGMMA.rows_of(problem, table, device)
