"""What is legal but not worth trying in `gemv`: another candidate is as fast or faster."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, VECTOR_BYTES, WARP_THREADS
from space.columns import BoolColumn, Columns, IntColumn
from space.families import dependent_launch
from space.families.element_sizes import input_bytes
from space.families.gemv.derive import row_bytes
from space.families.gemv.knobs import A_CACHE, KNOBS
from space.rules import Rule, worth_of

#: Bytes that a multiprocessor must have asked for, so that memory never waits: 4.4 TB/s over 132 of them for some
#: 0.8 µs are 27 KB; half of that to be sure, and no more than helps.
LEAST_IN_FLIGHT_BYTES, MOST_IN_FLIGHT_BYTES = 12 * 1024, 128 * 1024
#: Threads of a multiprocessor: fewer don't hide the latency of sums and conversions.
LEAST_THREADS: Final = 256


def _widest(c: Columns) -> int:
    """Bytes of the widest load that rows are aligned for."""
    return min(row_bytes(c.problem) & -row_bytes(c.problem), VECTOR_BYTES)


def _tiles(c: Columns) -> IntColumn:
    column: IntColumn = c["tiles_n"] * c.problem.batch
    return column


def _split_useful(c: Columns) -> BoolColumn:
    """K over blocks only where columns alone leave multiprocessors idle, and no further than that."""
    fills = _tiles(c) * c["split_k"] <= 2 * c.device.sm_count * c["blocks_per_sm"]
    column: BoolColumn = (c["split_k"] == 1) | (fills & (c["steps"] >= 2))
    return column


def _in_flight(c: Columns) -> BoolColumn:
    """Enough, or all that there is: where problems are small nothing is in flight for long."""
    resident = np.minimum(c["blocks_per_sm"], np.maximum(-(-_tiles(c) * c["split_k"] // c.device.sm_count), 1))
    asked = c["in_flight_bytes"] // c["blocks_per_sm"] * resident
    column: BoolColumn = (asked <= MOST_IN_FLIGHT_BYTES) & (
        (asked >= LEAST_IN_FLIGHT_BYTES) | (c["steps"] <= c["buffers"])
    )
    return column


def _whole_steps(c: Columns) -> BoolColumn:
    """Of the last step at most half is idle, where there are few."""
    taken = c["steps"] * c["team"] * c["unroll"]
    column: BoolColumn = (c["steps"] > 8) | (2 * c["slice_pieces"] > taken) | ((c["unroll"] == 1) & (c["lanes"] == 4))
    return column


def _one_name(c: Columns) -> BoolColumn:
    """Warps share K only once all lanes of a warp do."""
    column: BoolColumn = (c["split_warps"] == 1) | (c["lanes"] == WARP_THREADS)
    return column


def _team_wide(c: Columns) -> BoolColumn:
    """Lanes side by side read whole lines."""
    line = c["lanes"] * c["load_bytes"] >= LINE_BYTES
    column: BoolColumn = line | (c["lanes"] * c["load_bytes"] * 2 > row_bytes(c.problem)) | (c["lanes"] == WARP_THREADS)
    return column


def _smem_resident(c: Columns) -> BoolColumn:
    used = c["blocks_per_sm"] * (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
    column: BoolColumn = used <= c.arch.smem_per_sm_bytes
    return column


def _a_cached(c: Columns) -> BoolColumn:
    """Through L1 only while A stays there beside what passes."""
    a_bytes = c.problem.m * c.problem.k * input_bytes(c.problem)
    column: BoolColumn = (c["a_path"] != A_CACHE) | np.bool_(a_bytes <= 64 * 1024)
    return column


_worth = worth_of(KNOBS)

WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.load_bytes", "loads are as wide as rows are aligned", "narrower ones need more instructions a byte",
           ("load_bytes",), lambda c: c["load_bytes"] == _widest(c)),
    _worth("worth.team", "a team is lanes of one warp, or whole warps", "the others name sums that take more shuffles",
           ("lanes", "split_warps"), _one_name),
    _worth("worth.lanes", "lanes of a column read a whole line side by side, unless its row is shorter",
           "a line that several loads touch is asked for several times", ("lanes", "load_bytes"), _team_wide),
    _worth("worth.in_flight", "a multiprocessor has asked for 12 to 128 KiB, or for all there is",
           "less leaves memory idle, more only waits longer",
           ("in_flight_bytes", "blocks_per_sm", "tiles_n", "split_k", "steps", "buffers"), _in_flight),
    _worth("worth.steps", "few steps are nearly whole", "idle lanes load nothing",
           ("steps", "team", "unroll", "slice_pieces", "lanes"), _whole_steps),
    _worth("worth.threads", "a multiprocessor has 256 threads or more", "fewer don't hide the latency of the products",
           ("threads", "blocks_per_sm"), lambda c: c["threads"] * c["blocks_per_sm"] >= LEAST_THREADS),
    _worth("worth.resident", "the blocks that registers are kept free for fit in shared memory too",
           "what is kept free for nobody is lost", ("blocks_per_sm", "shared_memory_bytes"), _smem_resident),
    _worth("worth.a_path", "A comes through L1 only while it fits there", "each column reads it again", ("a_path",),
           _a_cached),
    _worth("worth.split_k", "K is split over blocks where columns alone don't fill the machine",
           "adding slices costs a trip through L2", ("split_k", "tiles_n", "blocks_per_sm", "steps"), _split_useful),
    _worth("worth.persistent", "blocks walk over tiles only where there are more tiles than blocks",
           "one tile each is the same walk", ("persistent", "tiles_n", "split_k", "blocks_per_sm"),
           lambda c: (c["persistent"] == 0) | (_tiles(c) * c["split_k"] > c.device.sm_count * c["blocks_per_sm"])),
    _worth("worth.prefetch_bytes", "loads ask L2 for a line or two", "a row of B is read whole",
           ("prefetch_bytes",), lambda c: c["prefetch_bytes"] > 0),
    _worth("worth.prefetch_steps", "nothing is asked into L2 ahead of the loads",
           "it helps before the kernel before has ended, which no measurement among copies of itself shows",
           ("prefetch_steps",), lambda c: c["prefetch_steps"] == 0),
    _worth("worth.pdl", dependent_launch.SENTENCE, dependent_launch.WHY, ("pdl",),
           lambda c: (c["pdl"] == 0) | dependent_launch.is_short(c.problem)),
)  # fmt: skip
