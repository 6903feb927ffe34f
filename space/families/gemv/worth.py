"""Worth rules of `gemv`: what they remove is legal, but another candidate is at least as fast."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from space.arch import LINE_BYTES, VECTOR_BYTES, WARP_THREADS
from space.columns import BoolColumn, Columns, IntColumn
from space.families.common import PDL_SENTENCE, PDL_WHY
from space.families.gemv.derive import fits_l1, row_bytes
from space.families.gemv.knobs import A_CACHE, HINT_EVICT_FIRST, KNOBS
from space.rules import Rule, worth_of

#: Bytes in flight per multiprocessor that keep memory busy: 4.4 TB/s over 132 multiprocessors for about 0.8 µs are
#: 27 KB. The lower limit is half of that, to be safe; more than the upper limit does not help.
MIN_IN_FLIGHT_BYTES, MAX_IN_FLIGHT_BYTES = 12 * 1024, 128 * 1024
#: Threads per multiprocessor that hide the latency of sums and conversions.
MIN_THREADS: Final = 256


def _tiles(c: Columns) -> IntColumn:
    column: IntColumn = c["tiles_n"] * c.problem.batch
    return column


def _in_flight(c: Columns) -> BoolColumn:
    """Enough bytes are in flight, or all that a small problem has."""
    resident = np.minimum(c["blocks_per_sm"], np.maximum(-(-_tiles(c) * c["split_k"] // c.device.sm_count), 1))
    asked = c["in_flight_bytes"] // c["blocks_per_sm"] * resident
    column: BoolColumn = (asked <= MAX_IN_FLIGHT_BYTES) & (
        (asked >= MIN_IN_FLIGHT_BYTES) | (c["steps"] <= c["buffers"])
    )
    return column


def _staged_whole(c: Columns) -> bool:
    """Whether the shared memory of a block holds A whole, beside the least that the sums of a team take."""
    pitch = -(-row_bytes(c.problem) // VECTOR_BYTES) * VECTOR_BYTES
    return bool(c.problem.m * pitch + VECTOR_BYTES <= c.arch.smem_per_block_bytes)


_worth = worth_of(KNOBS)

WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.load_bytes", "loads are as wide as the alignment of rows allows",
           "narrower loads take more instructions per byte",
           ("load_bytes",),
           lambda c: c["load_bytes"] == math.gcd(row_bytes(c.problem), VECTOR_BYTES)),
    _worth("worth.team", "a team is lanes of one warp, or whole warps", "other teams only add shuffles",
           ("lanes", "split_warps"), lambda c: (c["split_warps"] == 1) | (c["lanes"] == WARP_THREADS)),
    _worth("worth.lanes", "the lanes of a column read whole lines, unless its row is shorter",
           "a line that several loads touch is requested several times", ("lanes", "load_bytes"),
           lambda c: (c["lanes"] * c["load_bytes"] >= LINE_BYTES) | (c["lanes"] == WARP_THREADS)
                     | (c["lanes"] * c["load_bytes"] * 2 > row_bytes(c.problem))),
    _worth("worth.in_flight", "a multiprocessor has 12 to 128 KiB in flight, or all of a small problem",
           "less leaves memory idle; more only waits longer",
           ("in_flight_bytes", "blocks_per_sm", "tiles_n", "split_k", "steps", "buffers"), _in_flight),
    _worth("worth.steps", "if there are few steps, at least half of the last one is used", "idle lanes load nothing",
           ("steps", "team", "unroll", "slice_pieces", "lanes"),
           lambda c: (c["steps"] > 8) | (2 * c["slice_pieces"] > c["steps"] * c["team"] * c["unroll"])
                     | ((c["unroll"] == 1) & (c["lanes"] == 4))),
    _worth("worth.threads", "a multiprocessor has 256 threads or more", "fewer do not hide the latency of the products",
           ("threads", "blocks_per_sm"), lambda c: c["threads"] * c["blocks_per_sm"] >= MIN_THREADS),
    _worth("worth.resident", "the shared memory of a multiprocessor holds as many blocks as its registers",
           "registers of blocks that do not fit stay unused", ("blocks_per_sm", "shared_memory_bytes"),
           lambda c: c["blocks_per_sm"] * (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
                     <= c.arch.smem_per_sm_bytes),
    _worth("worth.a_path", "A is read through L1 only if it fits there, or does not fit shared memory whole",
           "every column reads it again", ("a_path",),
           lambda c: (c["a_path"] != A_CACHE) | fits_l1(c.problem) | (not _staged_whole(c))),
    _worth("worth.split_k",
           "K is split over blocks only if columns alone do not fill the GPU, or A does not fit shared memory whole",
           "slices are summed through L2", ("split_k", "tiles_n", "blocks_per_sm", "steps"),
           lambda c: (c["split_k"] == 1) | (not _staged_whole(c))
                     | ((_tiles(c) * c["split_k"] <= 2 * c.device.sm_count * c["blocks_per_sm"]) & (c["steps"] >= 2))),
    _worth("worth.persistent", "blocks are persistent only if there are more tiles than blocks",
           "with one tile per block, both grids are the same", ("persistent", "tiles_n", "split_k", "blocks_per_sm"),
           lambda c: (c["persistent"] == 0) | (_tiles(c) * c["split_k"] > c.device.sm_count * c["blocks_per_sm"])),
    _worth("worth.prefetch_bytes", "a load makes L2 fetch one or two lines", "rows of B are read whole",
           ("prefetch_bytes",), lambda c: c["prefetch_bytes"] > 0),
    _worth("worth.cache_hint", "B streams through L2", "it is read once, and would displace what is read again",
           ("cache_hint",), lambda c: c["cache_hint"] == HINT_EVICT_FIRST),
    _worth("worth.prefetch_steps", "nothing is prefetched into L2",
           "it helps only behind another kernel, which measuring among copies of the same kernel does not show",
           ("prefetch_steps",), lambda c: c["prefetch_steps"] == 0),
    _worth("worth.pdl", PDL_SENTENCE, PDL_WHY, ("pdl",),
           lambda c: c["pdl"] == 0),
)  # fmt: skip
