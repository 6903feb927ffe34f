"""What is legal but not worth trying in `sm90_wgmma`: another candidate is as fast or faster."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, SECTOR_BYTES
from space.columns import BoolColumn, Columns, IntColumn, among
from space.families import dependent_launch
from space.families.element_sizes import input_bytes, output_bytes
from space.families.sm90_wgmma.derive import (
    BARRIER_BYTES_PER_STAGE,
    FLAG_BYTES,
    slice_stages,
    stage_k_bytes,
    stored_row_bytes,
)
from space.families.sm90_wgmma.knobs import (
    A_SMEM,
    EPILOGUE_DIRECT,
    EPILOGUE_TMA,
    EPILOGUE_TMA_HALF,
    HINT_NONE,
    HINT_STREAM_A,
    HINT_STREAM_B,
    KNOBS,
    RASTER_ALONG_M,
    SCHEDULE_COOPERATIVE,
    SCHEDULE_MULTISTAGE,
    SCHEDULE_PINGPONG,
)
from space.families.sm90_wgmma.operands import extent_m, extent_n, mn_major_a, mn_major_b
from space.instructions import wgmma
from space.kinds.gemm import Gemm
from space.layouts.swizzle import widest_span
from space.rules import Rule, worth_of

#: Deeper rings than this hide no more latency: 12 stages of 16 KiB are in flight long before they are used.
MOST_STAGES: Final = 12
#: A tile may compute this many times the elements of C that are there.
MOST_PADDING: Final = 1.35
#: Blocks of clusters along K that are tried, per multiprocessor: small blocks share one.
CLUSTER_K_FILL: Final = 40 / 33
#: A slice of K shorter than this spends its time filling the ring and summing.
LEAST_SLICE_STAGES: Final = 4
#: Stages of a tile from which on sharing out the last wave's pays, and the share of clusters that it must find idle.
LEAST_SHARED_STAGES, LEAST_IDLE = 48, 0.012
#: Rows up to which the transposed product wastes less of the instruction's 64 rows.
SWAP_ALWAYS, SWAP_SOMETIMES = 32, 256
#: Transposed, so many of the tiles suffice: of 65,536 × 1,024, 160 divides the long side with less waste.
SWAP_COVERS: Final = 0.95
#: Rows up to which weights pass through the machine once and memory sets the pace.
STREAMED_ROWS: Final = 64
#: What all rings together should have asked memory for: 4.4 TB/s for some 2.5 µs. More makes what is wanted first wait
#: behind what is wanted later (docs/kernels.md).
STREAMED_BYTES: Final = 11_000_000
#: Of operands that pass through once: more take so long that nothing is gained by asking for the first ones earlier.
MOST_PREFETCHED_BYTES: Final = 20_000_000


def _most_stages(c: Columns) -> IntColumn:
    """Stages that fit beside the staged C."""
    free = c.arch.smem_per_block_bytes - c["staged_bytes"] - FLAG_BYTES * c["consumer_warpgroups"]
    column: IntColumn = np.minimum(free // (c["stage_bytes"] + BARRIER_BYTES_PER_STAGE), MOST_STAGES)
    return column


def _padded(c: Columns) -> IntColumn:
    rows = c["tiles_m"] * c["tile_m"] * c["cluster_m"]
    return rows * c["tiles_n"] * c["tile_n"] * c["cluster_n"]


def _least_padded(c: Columns) -> IntColumn:
    """Elements that the smallest tile computes, so that tiny problems keep candidates."""
    return -(-extent_m(c) // wgmma.M) * wgmma.M * -(-extent_n(c) // wgmma.N_STEP) * wgmma.N_STEP


def _blocks(c: Columns) -> IntColumn:
    """Tiles of single blocks, all slices and products counted."""
    column: IntColumn = c["tiles_m"] * c["tiles_n"] * c["cluster_size"] * c["split_k"] * c.problem.batch
    return column


def _stages_deep(c: Columns) -> BoolColumn:
    # A producer runs into the next tile; without one a block that has a single tile can use no more than its K.
    useful = np.maximum(np.minimum(_most_stages(c), -(-c["k_iterations"] // c["cluster_k"])), 2)
    if not _streams(c):
        deep: BoolColumn = (c["stages"] <= useful) & (c["stages"] >= useful - 1)
        return deep
    wanted = np.minimum(np.maximum(STREAMED_BYTES // (_blocks(c) * c["stage_bytes"]), 3), useful)
    beside = np.maximum(wanted // 4, 1)
    column: BoolColumn = (c["stages"] <= useful) & np.isin((c["stages"] - wanted) / beside, (-1, 0, 1))
    return column


def _streams(c: Columns) -> bool:
    problem: Gemm = c.problem
    return min(problem.m, problem.n) <= STREAMED_ROWS


def _hint_useful(c: Columns) -> BoolColumn:
    """What is read once passes by what every block reads."""
    weights_are_a = (c["swap_ab"] == 1) == np.bool_(c.problem.m <= c.problem.n)
    hint = np.where(weights_are_a, HINT_STREAM_A, HINT_STREAM_B) if _streams(c) else HINT_NONE
    return np.asarray(c["cache_hint"] == hint)


def _pdl_useful(c: Columns) -> BoolColumn:
    """One wave of short products always; further waves perhaps, and where memory is what all wait for."""
    short = dependent_launch.is_short(c.problem)
    column: BoolColumn = np.where(
        c["pdl"] == 1,
        np.bool_(short) & (c["stream_k"] == 0),
        np.bool_(not short or _streams(c)) | (_blocks(c) > c.device.sm_count),
    )
    return column


def _split_useful(c: Columns) -> BoolColumn:
    """Slices that fill the machine about once or twice, and are long enough to be worth their sum."""
    fills = _blocks(c) <= 2 * c.device.sm_count
    column: BoolColumn = (c["split_k"] == 1) | (fills & (slice_stages(c) >= LEAST_SLICE_STAGES))
    return column


def _cluster_k_useful(c: Columns) -> BoolColumn:
    """Slices that fill the machine about once, and are long enough to be worth their sum."""
    fills = _blocks(c) <= CLUSTER_K_FILL * c.device.sm_count
    column: BoolColumn = (c["cluster_k"] == 1) | (fills & (slice_stages(c) >= LEAST_SLICE_STAGES))
    return column


def _stream_k_useful(c: Columns) -> BoolColumn:
    tiles, slots = c["tiles_m"] * c["tiles_n"] * c.problem.batch, c.device.sm_count // c["cluster_size"]
    waves = -(-tiles // slots)
    idle = (waves * slots - tiles) / (waves * slots)
    long = (c["k_iterations"] >= LEAST_SHARED_STAGES) & (waves > 1)
    column: BoolColumn = (c["stream_k"] == 0) | (long & (idle >= LEAST_IDLE))
    return column


def _prefetch_useful(c: Columns) -> BoolColumn:
    few = _streams(c) and c.problem.min_bytes <= MOST_PREFETCHED_BYTES
    ahead = np.bool_(few) & (c["pdl"] == 1)
    column: BoolColumn = (c["prefetch_stages"] == 0) | ahead
    return column


def _swap_useful(c: Columns) -> BoolColumn:
    rows = c.problem.m
    if rows <= SWAP_ALWAYS:
        return np.asarray(c["swap_ab"] == 1)
    if rows <= SWAP_SOMETIMES:
        return np.ones_like(c["swap_ab"], dtype=np.bool_)
    as_it_is = _tiles(rows, c["tile_m"]) * _tiles(c.problem.n, c["tile_n"])
    transposed = _tiles(c.problem.n, c["tile_m"]) * _tiles(rows, c["tile_n"])
    column: BoolColumn = (c["swap_ab"] == 0) | (transposed <= SWAP_COVERS * as_it_is)
    return column


def _tiles(extent: int, tile: IntColumn) -> IntColumn:
    column: IntColumn = -(-extent // tile)
    return column


def _swizzle_widest(c: Columns, operand: str) -> BoolColumn:
    """The widest span that a stage is made of, or that an MN-major tile fills."""
    size = input_bytes(c.problem)
    mn_major, rows = (mn_major_a(c), "tile_m") if operand == "a" else (mn_major_b(c), "tile_n")
    row_bytes = np.where(mn_major, c[rows], c["tile_k"]) * size
    widest: BoolColumn = c[f"swizzle_{operand}"] == widest_span(row_bytes)
    return widest


def _tile_k_useful(c: Columns) -> BoolColumn:
    """One line of K a stage, or two where stages are brief."""
    stage_k = stage_k_bytes(c)
    brief = c["tile_m"] * c["tile_n"] <= 128 * 128
    column: BoolColumn = (stage_k == LINE_BYTES) | ((stage_k == 2 * LINE_BYTES) & brief)
    return column


def _split_of_registers(c: Columns) -> BoolColumn:
    """The producer keeps 40, unless the consumers need what 24 leaves them, and 24 is enough for it."""
    tight = c["held_registers"] > np.where(c["consumer_warpgroups"] == 3, 96, 184)
    least = np.where((c["cluster_size"] > 1) | (c["stream_k"] == 1), 40, 24)
    column: BoolColumn = (c["producer_registers"] == 0) | (c["producer_registers"] == np.where(tight, least, 40))
    return column


def _schedule_useful(c: Columns) -> BoolColumn:
    tiles = _blocks(c)
    single_wave = tiles <= 2 * c.device.sm_count
    column: BoolColumn = (
        (c["schedule"] == SCHEDULE_COOPERATIVE)
        | ((c["schedule"] == SCHEDULE_PINGPONG) & (tiles > c.device.sm_count) & (c["tile_m"] <= 128))
        | ((c["schedule"] == SCHEDULE_MULTISTAGE) & single_wave & (c["tile_m"] * c["tile_n"] <= 128 * 128))
    )
    return column


def _epilogue_useful(c: Columns) -> BoolColumn:
    """Whole unless half buys a stage, and only by boxes of whole sectors; direct stores for all."""
    size = output_bytes(c.problem)
    sectors = stored_row_bytes(c) >= SECTOR_BYTES
    whole = c["tile_m"] * (c["consumer_warpgroups"] // c["team"]) * c["tile_n"] * size
    free = c.arch.smem_per_block_bytes - FLAG_BYTES * c["consumer_warpgroups"]
    stage = c["stage_bytes"] + BARRIER_BYTES_PER_STAGE
    buys = (free - whole // 2) // stage > np.maximum(free - whole, 0) // stage
    few = (free - whole // 2) // stage <= 5
    half = (c["epilogue"] == EPILOGUE_TMA_HALF) & buys & few
    column: BoolColumn = (c["epilogue"] == EPILOGUE_DIRECT) | (sectors & ((c["epilogue"] == EPILOGUE_TMA) | half))
    return column


def _raster_matters(c: Columns) -> BoolColumn:
    plain: BoolColumn = (c["raster"] == RASTER_ALONG_M) & (c["raster_group"] == 1)
    return plain | (_blocks(c) > c.device.sm_count)


def _raster_group_distinct(c: Columns) -> BoolColumn:
    """One name for one order: a group as wide as the grid is one order, however wide it is."""
    across = np.where(c["raster"] == RASTER_ALONG_M, c["tiles_m"], c["tiles_n"])
    groups = np.array(next(knob for knob in KNOBS if knob.name == "raster_group").domain)
    smallest_covering = groups[np.minimum(np.searchsorted(groups, across), len(groups) - 1)]
    return c["raster_group"] <= smallest_covering


_worth = worth_of(KNOBS)

WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.swap_ab", "few rows are computed transposed: all up to 32, perhaps to 256; more where tiles fit so",
           "the instruction has 64 rows, its columns go down to 8",
           ("swap_ab", "tile_m", "tile_n"), _swap_useful),
    _worth("worth.tile_n_step", "tiles above 128 columns differ in steps of 16",
           "a step of 8 changes less than 3 % of the work of a tile", ("tile_n",),
           lambda c: (c["tile_n"] <= 128) | (c["tile_n"] % 16 == 0)),
    _worth("worth.instructions_n", "one instruction spans the tile", "a narrower one reads A again from shared memory",
           ("instructions_n",), lambda c: c["instructions_n"] == 1),
    _worth("worth.tile_k", "a stage holds one 128-byte line of K, or two when the tile is small",
           "shorter stages pay a barrier more often; longer ones only help where a stage is brief",
           ("tile_m", "tile_n", "tile_k"), _tile_k_useful),
    _worth("worth.swizzle_a", "A is swizzled over the widest span that fits", "narrower spans conflict more",
           ("swizzle_a", "tile_m", "tile_k", "swap_ab"), lambda c: _swizzle_widest(c, "a")),
    _worth("worth.swizzle_b", "B is swizzled over the widest span that fits", "narrower spans conflict more",
           ("swizzle_b", "tile_n", "tile_k", "swap_ab"), lambda c: _swizzle_widest(c, "b")),
    _worth("worth.a_source", "A is read from shared memory",
           "fragments in registers are reloaded by every stage, and the tensor core waits for them",
           ("a_source",), lambda c: c["a_source"] == A_SMEM),
    _worth("worth.producer_registers", "the producer keeps 40 registers, or the fewest if consumers need the rest",
           "how many it keeps changes nothing unless somebody spills",
           ("producer_registers", "consumer_warpgroups", "held_registers", "cluster_size", "stream_k"),
           _split_of_registers),
    _worth("worth.narrow", "wide tiles are not cut into thin ones",
           "below N = 64 the instruction waits for shared memory; thin tiles pay where C is narrow or rows are few",
           ("tile_n",),
           lambda c: (c["tile_n"] >= 64) | np.bool_(min(c.problem.n, c.problem.m) <= 512)),
    _worth("worth.padding", "tiles compute at most 1.35 times the elements of C that the smallest tile would",
           "padding is computed and thrown away",
           ("swap_ab", "tiles_m", "tiles_n", "tile_m", "tile_n", "cluster_m", "cluster_n"),
           lambda c: _padded(c) <= MOST_PADDING * _least_padded(c)),
    _worth("worth.stages", "the ring is as deep as fits and is useful, or one less; where memory sets the pace all "
           "rings together hold about 11 MB",
           "the last stage is sometimes worth -5 %, never the last two; memory that was asked for too much answers "
           "what is wanted first too late",
           ("stages", "stage_bytes", "staged_bytes", "consumer_warpgroups", "k_iterations", "tiles_m", "tiles_n",
            "cluster_size", "cluster_k", "split_k"), _stages_deep),
    _worth("worth.cluster", "clusters are single blocks, pairs, or squares of four",
           "longer clusters strand multiprocessors and share no more than a pair does",
           ("cluster_m", "cluster_n"), lambda c: (c["cluster_m"] <= 2) & (c["cluster_n"] <= 2)),
    _worth("worth.split_k", "K is split where tiles alone don't fill the machine, into slices of four stages or more",
           "summing slices costs a trip through L2",
           ("split_k", "cluster_k", "tiles_m", "tiles_n", "cluster_size", "k_iterations"),
           _split_useful),
    _worth("worth.cluster_k", "clusters along K where tiles alone don't fill the machine, in slices of four stages",
           "each multiprocessor takes 64 bytes a clock from L2: more of them take more; sums cost half a microsecond",
           ("cluster_k", "split_k", "tiles_m", "tiles_n", "cluster_size", "k_iterations"), _cluster_k_useful),
    _worth("worth.stream_k", "a last wave is shared out where it leaves over a hundredth of all clusters idle, of "
           "tiles of 48 stages or more", "a shared tile's sums go through L2, which takes some five microseconds",
           ("stream_k", "tiles_m", "tiles_n", "cluster_size", "k_iterations"), _stream_k_useful),
    _worth("worth.schedule", "ping-pong for several waves of tiles, no producer for one of small tiles",
           "taking turns hides epilogues that follow one another; a producer takes time to start",
           ("schedule", "tile_m", "tile_n", "tiles_m", "tiles_n", "cluster_size", "split_k"), _schedule_useful),
    _worth("worth.epilogue", "C is staged by halves only where that buys a stage of a short ring, and at all only "
           "where TMA can write it by boxes of 32 bytes or more",
           "two hand-overs cost more than one; a row of 16 bytes takes as long as one of 128",
           ("epilogue", "tile_m", "tile_n", "consumer_warpgroups", "team", "stage_bytes", "store_box_n", "swap_ab"),
           _epilogue_useful),
    _worth("worth.raster_wave", "one wave of tiles has one order", "tiles that run at the same time have none",
           ("raster", "raster_group", "tiles_m", "tiles_n", "cluster_size", "split_k"), _raster_matters),
    _worth("worth.raster_group", "no wider group than the grid of tiles", "it names the same order twice",
           ("raster", "raster_group", "tiles_m", "tiles_n"), _raster_group_distinct),
    _worth("worth.raster_step", "groups grow in factors of four", "neighbouring widths differ by less than 1 %",
           ("raster_group",), lambda c: among(c["raster_group"], (1, 4, 16))),
    _worth("worth.cache_hint", "weights that are read once pass by what stays; other loads have no cache hint",
           "the raster order decides what L2 keeps of operands that are read again", ("cache_hint", "swap_ab"),
           _hint_useful),
    _worth("worth.l2_promotion", "TMA asks L2 for lines of 128 bytes",
           "a line of either operand is used whole; asking for its neighbour too was 1 % slower", ("l2_promotion",),
           lambda c: c["l2_promotion"] == LINE_BYTES),
    _worth("worth.pdl", dependent_launch.SENTENCE, dependent_launch.WHY,
           ("pdl", "stream_k", "tiles_m", "tiles_n", "cluster_size", "split_k"), _pdl_useful),
    _worth("worth.prefetch_stages", "stages are asked into L2 ahead only where weights pass through once, and are few",
           "asked for twice, a line takes two of the requests that a multiprocessor can have under way",
           ("prefetch_stages", "pdl"), _prefetch_useful),
)  # fmt: skip
