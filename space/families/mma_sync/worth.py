"""Worth rules of `mma_sync`: what they remove is legal, but another candidate is expected to be at least as fast.

The thresholds are those of `sm90_wgmma`, which recordings ground, where the resource is the same, and else follow from
the counts that each rule names. No measurement of these targets grounds them yet: each rule can be switched off.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES
from space.columns import BoolColumn, Columns, IntColumn, among
from space.families.common import extent_m, extent_n, raster_group_rule
from space.families.mma_sync import knobs
from space.families.mma_sync.derive import (
    FLAG_BYTES,
    INSTRUCTION_M,
    INSTRUCTION_N,
    SMEM_ALIGN_BYTES,
    slice_stages,
    stage_k_bytes,
)
from space.families.mma_sync.operands import block_scaled, conflict_degree
from space.families.mma_sync.stream_k import resident_blocks
from space.instructions.tma import MBARRIER_BYTES
from space.rules import Rule, worth_of

#: Up to these many rows of C, transposing always, or sometimes, wastes less of the instruction's 16 rows.
SWAP_ALWAYS, SWAP_SOMETIMES = INSTRUCTION_N, 64
#: Warps of a block: four quarters of a multiprocessor have one each, or two.
WARPS: Final = (4, 8)
#: Tiles up to this many elements may have fewer warps, or stages of 256 bytes of K.
SMALL_TILE: Final = 32 * 64
#: Reads of fragments from shared memory, as a multiple of those of the best split of a tile over as many warps.
MOST_READS: Final = 1.25
#: Threads that a multiprocessor should hold: two warps for each quarter hide one another's waits; more than eight need
#: registers that sums should have.
MIN_RESIDENT, MAX_RESIDENT = 256, 1024
#: Rings that are neither as deep as fits nor a stage less deep have this many stages.
USUAL_STAGES: Final = 3
#: Tiles may compute up to this many times the elements that the smallest tile would.
MAX_PADDING: Final = 1.35
#: A shorter slice of K spends its time on filling the ring and on summing.
MIN_SLICE_STAGES: Final = 4
#: Least share of the GPU that whole waves of tiles leave idle for stream-K to be tried.
LEAST_IDLE: Final = 0.15
#: TMA copies tiles with at least this many elements, if every multiprocessor has at least this many tiles: an H200
#: multiplies 4096³ and 8192³ 5 to 14 % faster with it. Smaller products were not measured.
TMA_TILE, TMA_WAVES = 128 * 128, 2


def _most_stages(c: Columns) -> IntColumn:
    """Stages that fit beside those of the multiprocessor's other blocks, and that a slice of K has."""
    block = c.arch.smem_per_sm_bytes // c["blocks_per_sm"] - c.arch.smem_reserved_bytes
    free = np.minimum(block, c.arch.smem_per_block_bytes) // SMEM_ALIGN_BYTES * SMEM_ALIGN_BYTES - FLAG_BYTES
    deepest = knobs.KNOBS[[knob.name for knob in knobs.KNOBS].index("stages")].domain[-1]
    assert isinstance(deepest, int)
    barriers = 2 * MBARRIER_BYTES * (c["copies"] == knobs.COPIES_TMA)
    column: IntColumn = np.clip(np.minimum(free // (c["stage_bytes"] + barriers), c["k_iterations"]), 2, deepest)
    return column


def _stages_deep(c: Columns) -> BoolColumn:
    most = _most_stages(c)
    usual = (c["stages"] == USUAL_STAGES) | (c["stages"] == USUAL_STAGES + 1)
    column: BoolColumn = (c["stages"] <= most) & ((c["stages"] >= most - 1) | usual) & ((c["stages"] > 2) | (most == 2))
    return column


def _swap_useful(c: Columns) -> BoolColumn:
    rows = c.problem.m
    if rows <= SWAP_ALWAYS:
        return np.asarray(c["swap_ab"] == 1)
    return np.asarray((c["swap_ab"] == 0) | np.bool_(rows <= SWAP_SOMETIMES))


def _warps_useful(c: Columns) -> BoolColumn:
    warps = c["warps_m"] * c["warps_n"]
    small = (warps < WARPS[0]) & (c["tile_m"] * c["tile_n"] <= SMALL_TILE)
    column: BoolColumn = among(warps, WARPS) | small
    return column


def _reads(tile_m: IntColumn, tile_n: IntColumn, warps_m: IntColumn, warps_n: IntColumn) -> IntColumn:
    """Rows of A and B that all warps of a block read from shared memory, for each k."""
    column: IntColumn = tile_m * warps_n + tile_n * warps_m
    return column


def _split_over_warps(c: Columns) -> BoolColumn:
    """The split of the tile over as many warps that reads least, or nearly."""
    warps = c["warps_m"] * c["warps_n"]
    own = least = _reads(c["tile_m"], c["tile_n"], c["warps_m"], c["warps_n"])
    for warps_m in (1, 2, 4):
        warps_n = np.maximum(warps // warps_m, 1)
        whole = (warps % warps_m == 0) & (c["tile_m"] % (INSTRUCTION_M * warps_m) == 0)
        whole &= c["tile_n"] % (INSTRUCTION_N * warps_n) == 0
        reads = _reads(c["tile_m"], c["tile_n"], np.asarray(warps_m), warps_n)
        least = np.where(whole, np.minimum(least, reads), least)
    column: BoolColumn = own <= MOST_READS * least
    return column


def _blocks(c: Columns) -> IntColumn:
    """Blocks of a launch, over all slices of K and all products of the batch."""
    column: IntColumn = c["tiles_m"] * c["tiles_n"] * c["split_k"] * c.problem.batch
    return column


def _streams(c: Columns) -> BoolColumn:
    """Whether stream-K fills a GPU that whole tiles leave idle."""
    tiles, slots = c["tiles_m"] * c["tiles_n"] * c.problem.batch, resident_blocks(c)
    idle = -(-tiles // slots) * slots - tiles
    stages = c["shared_tiles"] * c["k_iterations"]
    useful = (idle >= LEAST_IDLE * (tiles + idle)) & (stages >= MIN_SLICE_STAGES * c["sharing_blocks"])
    column: BoolColumn = (c["stream_k"] == 0) | (useful & (c["shared_tiles"] > 0))
    return column


def _tma_useful(c: Columns) -> BoolColumn:
    tiles = c["tiles_m"] * c["tiles_n"] * c.problem.batch
    large = (c["tile_m"] * c["tile_n"] >= TMA_TILE) & (tiles >= TMA_WAVES * c.device.sm_count)
    column: BoolColumn = (c["copies"] == knobs.COPIES_CP_ASYNC) | large
    return column


def _least_padded(c: Columns) -> IntColumn:
    """Elements that the smallest tile would compute; tiny problems thus keep candidates."""
    rows = -(-extent_m(c) // INSTRUCTION_M) * INSTRUCTION_M
    column: IntColumn = rows * (-(-extent_n(c) // INSTRUCTION_N) * INSTRUCTION_N)
    return column


_worth = worth_of(knobs.KNOBS)

WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.swap_ab", f"products of up to {SWAP_ALWAYS} rows of C are transposed, up to {SWAP_SOMETIMES} may be",
           "an instruction has 16 rows, but only 8 columns", ("swap_ab",), _swap_useful),
    _worth("worth.warps", "a block has four or eight warps, or fewer if its tile is small",
           "a multiprocessor has four tensor cores, each driven by the warps of its own quarter",
           ("tile_m", "tile_n", "warps_m", "warps_n"), _warps_useful),
    _worth("worth.warp_tile", "the split of a tile over its warps reads the least from shared memory, or nearly",
           "rows of A are read once for each warp along N, columns of B once for each warp along M",
           ("tile_m", "tile_n", "warps_m", "warps_n"), _split_over_warps),
    _worth("worth.unit_scales", "fp8 with f32 sums is multiplied by the block-scaled instruction",
           "GeForce cards halve the rate of the plain one, others do not", ("unit_scales",),
           lambda c: (c["unit_scales"] == 1) | np.bool_(block_scaled(c.problem, c.arch.name) is None)),
    _worth("worth.copies", f"TMA copies tiles of {TMA_TILE:,} elements or more, {TMA_WAVES} for each multiprocessor",
           "a producer pays where it copies the next tile during the epilogue of one; measured on an H200",
           ("copies", "tile_m", "tile_n", "tiles_m", "tiles_n"), _tma_useful),
    _worth("worth.tile_k", "a stage holds 64 or 128 bytes of K, or 256 if the tile is small or TMA copies it",
           "longer stages leave room for fewer of them; a stage of TMA costs a wait, however long it is",
           ("copies", "tile_m", "tile_n", "tile_k"),
           lambda c: (stage_k_bytes(c) <= LINE_BYTES) | (c["copies"] == knobs.COPIES_TMA)
                     | (c["tile_m"] * c["tile_n"] <= SMALL_TILE)),
    _worth("worth.swizzle", "eight rows of a matrix lie in different banks",
           f"space/layouts/banks.py: without a swizzle, ldmatrix of a K-major stage is "
           f"{conflict_degree(64, swizzled=False)} to {conflict_degree(128, swizzled=False)}-way conflicted, with it "
           f"{conflict_degree(128, swizzled=True)}-way",
           ("swizzle",), lambda c: c["swizzle"] == 1),
    _worth("worth.padding", "tiles compute at most 1.35 times the elements that the smallest tile would",
           "results in the padding are discarded", ("tiles_m", "tiles_n", "tile_m", "tile_n", "swap_ab"),
           lambda c: c["tiles_m"] * c["tile_m"] * c["tiles_n"] * c["tile_n"] <= MAX_PADDING * _least_padded(c)),
    _worth("worth.stages", "the ring is as deep as fits beside other blocks, or a stage less, or three or four deep",
           "deeper rings hide more latency; shallower ones leave shared memory to L1",
           ("copies", "stages", "stage_bytes", "blocks_per_sm", "k_iterations"), _stages_deep),
    _worth("worth.resident", f"a multiprocessor holds {MIN_RESIDENT} to {MAX_RESIDENT:,} threads",
           "fewer do not hide one another's waits; more have too few registers for their sums",
           ("consumer_threads", "blocks_per_sm"),
           lambda c: (c["consumer_threads"] * c["blocks_per_sm"] >= MIN_RESIDENT)
                     & (c["consumer_threads"] * c["blocks_per_sm"] <= MAX_RESIDENT)),
    _worth("worth.split_k", "K is split if tiles alone do not fill the GPU, into slices of four stages or more",
           "slices are summed through L2", ("split_k", "tiles_m", "tiles_n", "k_iterations"),
           lambda c: (c["split_k"] == 1)
                     | ((_blocks(c) <= 2 * c.device.sm_count) & (slice_stages(c) >= MIN_SLICE_STAGES))),
    _worth("worth.stream_k", f"stages are shared, four or more a block, if whole waves idle {LEAST_IDLE:.0%} of a GPU",
           "partial sums pass through L2",
           ("stream_k", "shared_tiles", "sharing_blocks", "k_iterations", "tiles_m", "tiles_n", "blocks_per_sm"),
           _streams),
    _worth("worth.persistent", "each block computes one tile, or one tile after another if TMA copies them",
           "where several blocks share a multiprocessor, the start of one overlaps the products of another; a producer "
           "loads the next tile during the epilogue",
           ("copies", "persistent"), lambda c: c["persistent"] == (c["copies"] == knobs.COPIES_TMA)),
    _worth("worth.raster_wave", "one wave of tiles has one raster order",
           "tiles that run at the same time have no order",
           ("raster", "raster_group", "tiles_m", "tiles_n", "split_k"),
           lambda c: ((c["raster"] == knobs.RASTER_ALONG_M) & (c["raster_group"] == 1))
                     | (_blocks(c) > c.device.sm_count)),
    raster_group_rule(_worth, knobs.RASTER_ALONG_M, knobs.KNOBS),
    _worth("worth.raster_step", "raster groups are 1, 4 or 16 tiles wide",
           "neighbouring widths differ by less than 1 % on an H200", ("raster_group",),
           lambda c: among(c["raster_group"], (1, 4, 16))),
    _worth("worth.prefetch_bytes", "a copy makes L2 fetch a line", "lines are used whole", ("prefetch_bytes",),
           lambda c: c["prefetch_bytes"] == LINE_BYTES),
)  # fmt: skip
