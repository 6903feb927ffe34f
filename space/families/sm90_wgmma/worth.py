"""Worth rules of `sm90_wgmma`: what they remove is legal, but another candidate is at least as fast."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, SECTOR_BYTES
from space.columns import BoolColumn, Columns, IntColumn, among
from space.families.common import (
    PDL_SENTENCE,
    PDL_WHY,
    extent_m,
    extent_n,
    input_bytes,
    output_bytes,
    raster_group_rule,
)
from space.families.sm90_wgmma import knobs
from space.families.sm90_wgmma.derive import (
    BARRIER_BYTES_PER_STAGE,
    FLAG_BYTES,
    slice_stages,
    stage_k_bytes,
    stored_row_bytes,
    streams_large_rows,
    streams_weights,
)
from space.families.sm90_wgmma.operands import lies_mn_major, mn_major_a, mn_major_b, operand_streamed
from space.instructions import wgmma
from space.layouts.swizzle import widest_span
from space.rules import Rule, worth_of

#: Deeper rings hide no more latency: 12 stages of 16 KiB are in flight long before they are used.
MAX_STAGES: Final = 12
#: Tiles may compute up to this many times the elements that the smallest tile would.
MAX_PADDING: Final = 1.35
#: Blocks of clusters along K per multiprocessor, at most; small blocks share a multiprocessor.
CLUSTER_K_FILL: Final = 40 / 33
#: A shorter slice of K spends its time on filling the ring and on summing.
MIN_SLICE_STAGES: Final = 4
#: Sums of short slices pay for up to these many rows or columns of C.
SHORT_SLICE_ROWS: Final = 64
#: Fewest stages of a slice of K for which ping-pong multiplies one wave of tiles of 64 rows: with 112 it took up to
#: 2.3 % less, in 17 recorded pairs of shorter slices 1.3 % more on average.
LONG_SLICE_STAGES: Final = 64
#: Up to these many rows of C, transposing always, or sometimes, wastes less of the instruction's 64 rows.
SWAP_ALWAYS, SWAP_SOMETIMES = 32, 256
#: Up to this K few rows may stay as they are: narrow tiles of C are more blocks, and each has little to do.
SWAP_SOMETIMES_K: Final = 256
#: Larger products are transposed if that takes at most this share of the tiles: of 65,536 × 1,024, a tile of 160
#: divides the long side with less waste.
SWAP_COVERS: Final = 0.95
#: Or of the waves: tiles of 256 × 200 fill an H200 ten times for a transposed C of 16,384 × 4,096, else eleven times.
SWAP_WAVES: Final = 0.97
#: Tiles along M and N from which on one wave of them has several orders.
SQUARE_WAVE: Final = 4
#: Bytes of weights that the rings of all multiprocessors should hold together: 4.4 TB/s for 2.3 µs. With much more,
#: early requests wait behind later ones (docs/kernels/memory.md).
STREAMED_BYTES: Final = 10_000_000


def _most_stages(c: Columns) -> IntColumn:
    """Stages that fit in shared memory beside the staged C."""
    free = c.arch.smem_per_block_bytes - c["staged_bytes"] - FLAG_BYTES * c["consumer_warpgroups"]
    column: IntColumn = np.minimum(free // (c["stage_bytes"] + BARRIER_BYTES_PER_STAGE), MAX_STAGES)
    return column


def _least_padded(c: Columns) -> IntColumn:
    """Elements that the smallest tile would compute; tiny problems thus keep candidates."""
    return -(-extent_m(c) // wgmma.M) * wgmma.M * -(-extent_n(c) // wgmma.N_STEP) * wgmma.N_STEP


def _blocks(c: Columns) -> IntColumn:
    """Tiles of single blocks, over all slices of K and all products of the batch."""
    column: IntColumn = c["tiles_m"] * c["tiles_n"] * c["cluster_size"] * c["split_k"] * c.problem.batch
    return column


def _stages_deep(c: Columns) -> BoolColumn:
    most = np.maximum(_most_stages(c), 2)
    useful = np.maximum(np.minimum(most, -(-c["k_iterations"] // c["cluster_k"])), 2)
    # A ring longer than K helps only a producer, which runs ahead into the next tile.
    ahead = _blocks(c) > c.device.sm_count
    if not streams_weights(c.problem):
        deep: BoolColumn = _nearly(c["stages"], useful) | (ahead & _nearly(c["stages"], most))
        return deep
    useful = np.where(ahead, most, useful)
    # The few rows of the other operand come from L2.
    weights = np.where(_weights_are_a(c), c["tile_a_bytes"], c["tile_b_bytes"])
    rings = np.minimum(_blocks(c), c.device.sm_count)
    wanted = np.minimum(np.maximum(STREAMED_BYTES // (rings * weights), 3), useful)
    beside = np.maximum(wanted // 4, 1)
    column: BoolColumn = (c["stages"] <= useful) & (np.abs(c["stages"] - wanted) <= beside)
    return column


def _nearly(stages: IntColumn, most: IntColumn) -> BoolColumn:
    return np.asarray((stages <= most) & (stages >= most - 1))


def _weights_are_a(c: Columns) -> BoolColumn:
    """Whether the operand with more rows, which is read once, is the kernel's A."""
    column: BoolColumn = (c["swap_ab"] == 1) == np.bool_(operand_streamed(c.problem) == "b")
    return column


def slices_pay(c: Columns, fill: float, least: int = MIN_SLICE_STAGES) -> BoolColumn:
    """Whether slices of K fill the GPU up to `fill` times and have the stages that pay for their sums."""
    return (_blocks(c) <= fill * c.device.sm_count) & (slice_stages(c) >= least)


def _cluster_k_useful(c: Columns) -> BoolColumn:
    """Slices fill the GPU, or read whole rows of large weights; those of few rows may be short."""
    whole_rows = np.bool_(streams_large_rows(c.problem)) & (slice_stages(c) >= MIN_SLICE_STAGES)
    least = 0 if min(c.problem.m, c.problem.n) <= SHORT_SLICE_ROWS else MIN_SLICE_STAGES
    column: BoolColumn = (c["cluster_k"] == 1) | slices_pay(c, CLUSTER_K_FILL, least) | whole_rows
    return column


def _swap_useful(c: Columns) -> BoolColumn:
    rows = c.problem.m
    if rows <= SWAP_ALWAYS and c.problem.k > SWAP_SOMETIMES_K:
        return np.asarray(c["swap_ab"] == 1)
    if rows <= SWAP_SOMETIMES:
        return np.ones_like(c["swap_ab"], dtype=np.bool_)
    as_it_is = _tiles(rows, c["tile_m"]) * _tiles(c.problem.n, c["tile_n"])
    transposed = _tiles(c.problem.n, c["tile_m"]) * _tiles(rows, c["tile_n"])
    fewer = (transposed <= SWAP_COVERS * as_it_is) | (_waves(c, transposed) <= SWAP_WAVES * _waves(c, as_it_is))
    column: BoolColumn = (c["swap_ab"] == 0) | fewer | _finer_transposed(c)
    return column


def _waves(c: Columns, tiles: IntColumn) -> IntColumn:
    """How often the tiles of all products fill the GPU, the last time perhaps in part."""
    column: IntColumn = -(-tiles * c.problem.batch // c.device.sm_count)
    return column


def _finer_transposed(c: Columns) -> BoolColumn:
    """Whether the tile is no whole number of swizzle patterns wide, and only the operand that lies along its width as
    it is, and along its height when transposed, needs whole ones: an MN-major B beside a K-major A."""
    b_alone = lies_mn_major(c.problem, "b") and not lies_mn_major(c.problem, "a")
    column: BoolColumn = (c["tile_n"] * input_bytes(c.problem) % LINE_BYTES != 0) & np.bool_(b_alone)
    return column


def _tiles(extent: int, tile: IntColumn) -> IntColumn:
    return -(-extent // tile)


def _swizzle_widest(c: Columns, operand: str) -> BoolColumn:
    """The widest span that a stage of K, or a row of an MN-major tile, fills."""
    size = input_bytes(c.problem)
    mn_major, rows = (mn_major_a(c), "tile_m") if operand == "a" else (mn_major_b(c), "tile_n")
    row_bytes = np.where(mn_major, c[rows], c["tile_k"]) * size
    widest: BoolColumn = c[f"swizzle_{operand}"] == widest_span(row_bytes)
    return widest


def _split_of_registers(c: Columns) -> BoolColumn:
    """The producer keeps 40 registers, or 24 if that suffices and the consumers need the rest."""
    tight = c["held_registers"] > np.where(c["consumer_warpgroups"] == 3, 96, 184)
    least = np.where((c["cluster_size"] > 1) | (c["stream_k"] == 1), 40, 24)
    column: BoolColumn = (c["producer_registers"] == 0) | (c["producer_registers"] == np.where(tight, least, 40))
    return column


def _schedule_useful(c: Columns) -> BoolColumn:
    tiles = _blocks(c)
    single_wave = tiles <= 2 * c.device.sm_count
    in_turn = (tiles > c.device.sm_count) & (c["tile_m"] <= 128)
    long = (slice_stages(c) >= LONG_SLICE_STAGES) & (c["tile_m"] == 64)
    column: BoolColumn = (
        (c["schedule"] == knobs.SCHEDULE_COOPERATIVE)
        | ((c["schedule"] == knobs.SCHEDULE_PINGPONG) & (in_turn | long))
        | ((c["schedule"] == knobs.SCHEDULE_MULTISTAGE) & single_wave & (c["tile_m"] * c["tile_n"] <= 128 * 128))
    )
    return column


def _epilogue_useful(c: Columns) -> BoolColumn:
    """Direct stores always; staging by boxes of whole sectors only; half tiles only if that makes room for a stage."""
    size = output_bytes(c.problem)
    sectors = stored_row_bytes(c) >= SECTOR_BYTES
    whole = c["tile_m"] * (c["consumer_warpgroups"] // c["team"]) * c["tile_n"] * size
    free = c.arch.smem_per_block_bytes - FLAG_BYTES * c["consumer_warpgroups"]
    stage = c["stage_bytes"] + BARRIER_BYTES_PER_STAGE
    buys = (free - whole // 2) // stage > np.maximum(free - whole, 0) // stage
    few = (free - whole // 2) // stage <= 5
    half = (c["epilogue"] == knobs.EPILOGUE_TMA_HALF) & buys & few
    staged = sectors & ((c["epilogue"] == knobs.EPILOGUE_TMA) | half)
    column: BoolColumn = (c["epilogue"] == knobs.EPILOGUE_DIRECT) | staged
    return column


_worth = worth_of(knobs.KNOBS)

WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.swap_ab",
           "products of up to 32 rows of C are transposed unless K is 256 at most, up to 256 rows may be, larger ones "
           "if that takes fewer tiles or waves, or frees the tile's width from the swizzle of an MN-major B",
           "an instruction has 64 rows, but as few as 8 columns",
           ("swap_ab", "tile_m", "tile_n"), _swap_useful),
    _worth("worth.instructions_n", "one instruction spans the tile",
           "narrower instructions read A from shared memory again",
           ("instructions_n",), lambda c: c["instructions_n"] == 1),
    _worth("worth.tile_k", "a stage holds one 128-byte line of K, or two if the tile is small",
           "shorter stages wait at more barriers; longer ones help only where a stage takes little time",
           ("tile_m", "tile_n", "tile_k"),
           lambda c: (stage_k_bytes(c) == LINE_BYTES)
                     | ((stage_k_bytes(c) == 2 * LINE_BYTES) & (c["tile_m"] * c["tile_n"] <= 128 * 128))),
    _worth("worth.swizzle_a", "A has the widest swizzle that fits", "narrower spans cause more bank conflicts",
           ("swizzle_a", "tile_m", "tile_k", "swap_ab"), lambda c: _swizzle_widest(c, "a")),
    _worth("worth.swizzle_b", "B has the widest swizzle that fits", "narrower spans cause more bank conflicts",
           ("swizzle_b", "tile_n", "tile_k", "swap_ab"), lambda c: _swizzle_widest(c, "b")),
    _worth("worth.a_source", "A is read from shared memory",
           "every stage reloads fragments into registers, and the tensor core waits for them",
           ("a_source",), lambda c: c["a_source"] == knobs.A_SMEM),
    _worth("worth.producer_registers",
           "the producer keeps 40 registers, or the fewest it can if consumers need the rest",
           "the count changes nothing unless a consumer spills",
           ("producer_registers", "consumer_warpgroups", "held_registers", "cluster_size", "stream_k"),
           _split_of_registers),
    _worth("worth.narrow", "tiles narrower than 64 columns are for products with M or N of at most 512",
           "below N = 64 the instruction waits for shared memory",
           ("tile_n",),
           lambda c: (c["tile_n"] >= 64) | np.bool_(min(c.problem.n, c.problem.m) <= 512)),
    _worth("worth.padding", "tiles compute at most 1.35 times the elements that the smallest tile would",
           "results in the padding are discarded",
           ("swap_ab", "tiles_m", "tiles_n", "tile_m", "tile_n", "cluster_m", "cluster_n"),
           lambda c: c["tiles_m"] * c["tile_m"] * c["cluster_m"] * c["tiles_n"] * c["tile_n"] * c["cluster_n"]
                     <= MAX_PADDING * _least_padded(c)),
    _worth("worth.stages",
           "the ring is as deep as fits and K or the next tile needs, or one stage less; where memory sets the pace, "
           "all rings together hold about 10 MB of weights",
           "the last stage sometimes costs 5 %, the last two never; with too many requests in flight, memory "
           "answers the urgent ones late",
           ("stages", "stage_bytes", "tile_a_bytes", "tile_b_bytes", "staged_bytes", "consumer_warpgroups",
            "k_iterations", "swap_ab", "tiles_m", "tiles_n", "cluster_size", "cluster_k", "split_k"), _stages_deep),
    _worth("worth.cluster", "clusters are single blocks, pairs, or squares of four",
           "longer clusters leave multiprocessors idle and share no more than a pair does",
           ("cluster_m", "cluster_n"), lambda c: (c["cluster_m"] <= 2) & (c["cluster_n"] <= 2)),
    _worth("worth.split_k", "K is split if tiles alone do not fill the GPU, into slices of four stages or more",
           "slices are summed through L2",
           ("split_k", "cluster_k", "tiles_m", "tiles_n", "cluster_size", "k_iterations"),
           lambda c: (c["split_k"] == 1) | slices_pay(c, fill=2)),
    _worth("worth.cluster_k",
           "clusters along K are used if tiles alone do not fill the GPU, or up to 32 rows meet 200 MB or more of "
           "weights that lie along K, with slices of four stages or more, or shorter ones of up to 64 rows",
           "a multiprocessor takes 64 bytes per clock from L2, so more of them load faster; summing takes 0.5 us; "
           "memory answers faster where a cluster reads whole rows",
           ("cluster_k", "split_k", "tiles_m", "tiles_n", "cluster_size", "k_iterations"), _cluster_k_useful),
    _worth("worth.stream_k", "stream-K is not used",
           "clusters that begin with shared stages are out of step with others, and L2 answers them one by one; of 83 "
           "recordings that tried it none was fastest with it", ("stream_k",), lambda c: c["stream_k"] == 0),
    _worth("worth.schedule",
           "pingpong is for several waves of tiles, or for tiles of 64 rows with 64 stages or more; multistage "
           "for one wave of small tiles",
           "taking turns hides epilogues that follow one another; one wave of long slices took up to 2.3 % less with "
           "it, of shorter ones 1.3 % more; a producer takes time to start up",
           ("schedule", "tile_m", "tile_n", "tiles_m", "tiles_n", "cluster_size", "cluster_k", "split_k",
            "k_iterations"), _schedule_useful),
    _worth("worth.epilogue",
           "C is staged only if TMA can write it in boxes of 32 bytes or more, and by halves only if that "
           "makes room for another stage of a short ring",
           "two hand-overs cost more than one; a row of 16 bytes takes as long as one of 128",
           ("epilogue", "tile_m", "tile_n", "consumer_warpgroups", "team", "stage_bytes", "store_box_n", "swap_ab"),
           _epilogue_useful),
    _worth("worth.raster_wave",
           "one wave of tiles has one raster order, or groups of 1 or 4 where it is four tiles high and wide",
           "tiles that run at the same time have no order, but multiprocessors of one GPC share what they load",
           ("raster", "raster_group", "tiles_m", "tiles_n", "cluster_size", "split_k"),
           lambda c: ((c["raster"] == knobs.RASTER_ALONG_M) & (c["raster_group"] == 1))
                     | (_blocks(c) > c.device.sm_count)
                     | ((c["raster_group"] <= 4) & (np.minimum(c["tiles_m"], c["tiles_n"]) >= SQUARE_WAVE))),
    raster_group_rule(_worth, knobs.RASTER_ALONG_M, knobs.KNOBS),
    _worth("worth.raster_step", "raster groups are 1, 4 or 12 tiles wide",
           "132 multiprocessors multiply 12 by 11 tiles at a time; neighbouring widths differ by less than 1 %",
           ("raster_group",), lambda c: among(c["raster_group"], (1, 4, 12))),
    _worth("worth.cache_hint", "loads have no cache hint",
           "weights marked evict_first took 0 to 4 % longer where a program reads gigabytes between two launches",
           ("cache_hint",), lambda c: c["cache_hint"] == knobs.HINT_NONE),
    _worth("worth.l2_promotion", "TMA makes L2 fetch lines of 128 bytes",
           "lines are used whole; fetching the neighbour too was 1 % slower", ("l2_promotion",),
           lambda c: c["l2_promotion"] == LINE_BYTES),
    _worth("worth.pdl", PDL_SENTENCE, PDL_WHY, ("pdl",), lambda c: c["pdl"] == 0),
    _worth("worth.prefetch_stages", "stages are prefetched into L2 only behind a kernel that allows an early start",
           "a line requested twice takes two of the requests that a multiprocessor can have in flight",
           ("prefetch_stages",), lambda c: c["prefetch_stages"] == 0),
)  # fmt: skip
