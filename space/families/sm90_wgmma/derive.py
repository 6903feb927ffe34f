"""Derived values of `sm90_wgmma`. The kernel asserts those marked `in_kernel` when it compiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import WORD_BYTES
from space.columns import BoolColumn, Columns, Derived, IntColumn, kept
from space.families.common import SEMAPHORE_BYTES, counted, extent_m, extent_n, input_bytes, output_bytes
from space.families.sm90_wgmma.knobs import A_REGISTERS, SCHEDULE_MULTISTAGE, SCHEDULE_PINGPONG
from space.families.sm90_wgmma.operands import instruction, lies_mn_major, mn_major_a, mn_major_b, operand_streamed
from space.instructions import setmaxnreg, wgmma
from space.instructions.tma import MBARRIER_BYTES
from space.kinds.gemm import SCALES, Gemm
from space.layouts.boxes import boxes_across
from space.layouts.swizzle import SWIZZLES, WIDEST, row_bytes_of

#: Operand tiles start at multiples of this, so that the pattern of every swizzle starts with the tile.
TILE_ALIGN_BYTES: Final = WIDEST.pattern_bytes
#: One full and one empty mbarrier per stage.
BARRIER_BYTES_PER_STAGE: Final = 2 * MBARRIER_BYTES
#: Per consumer warpgroup, for split-K and clusters along K: a word that says which share of a tile it writes, and an
#: mbarrier that says that the sums of the share have arrived.
FLAG_BYTES: Final = WORD_BYTES + MBARRIER_BYTES
#: Box widths of TMA stores of C, best first; their swizzles spread each line over the banks. Staged columns that
#: neither divides are one unswizzled box: its lines meet all banks if they are an odd number of 16-byte groups, half of
#: them if twice an odd number, and it writes whole sectors except at the edges of the tile.
STORE_BOX_BYTES: Final = (SWIZZLES["128B"].span_bytes, SWIZZLES["64B"].span_bytes)
#: Box width of a transposed tile, whose boxes run along its rows.
SWAPPED_STORE_BYTES: Final = WIDEST.span_bytes
#: 32-bit sums of the narrowest instruction: eight columns of 64 rows. It is the unit that blocks exchange.
GROUP_BYTES: Final = wgmma.M * wgmma.N_STEP * WORD_BYTES
#: Registers for the addresses of ldmatrix.
FRAGMENT_ADDRESSES: Final = 16
#: Registers that an epilogue with a source, a bias or an exponential needs, and one with erf: the fewest without
#: spills. One that multiplies by scales of rows and columns and then adds a bias holds both sets at once.
FINISH_REGISTERS, ERF_REGISTERS, ROWWISE_BIAS_REGISTERS = 104, 112, 24
_READING_PARTS: Final = frozenset({"beta", "bias", "silu", *SCALES})
#: Up to these many rows of C, weights are read once and memory sets the pace.
STREAMED_ROWS: Final = 64
#: From these bytes of weights, and up to these many rows of C, memory answers faster where a cluster along K reads
#: whole rows: fewer rows are open at a time (docs/kernels/memory.md). Sums of more rows take longer than that gains.
LARGE_WEIGHTS_BYTES, WHOLE_ROWS_UP_TO = 200_000_000, 32
#: Halves of a tile of C that are staged at a time, by epilogue: none for `direct`, 2 for `tma`, 1 for `tma_half`, whose
#: halves overlap by eight columns if there is an odd number of eights.
_STAGED_HALVES: Final = np.array([0, 2, 1])


def _align(value: IntColumn) -> IntColumn:
    # The alignment is a power of two: masks are faster than division.
    return value + (TILE_ALIGN_BYTES - 1) & -TILE_ALIGN_BYTES


def _tile_bytes(c: Columns, rows: IntColumn, swizzle: str, mn_major: BoolColumn) -> IntColumn:
    """Bytes of shared memory of one operand tile; an MN-major tile takes whole swizzle spans of its rows.

    Problems without an MN-major operand do not read the swizzle: more candidates then share one value.
    """
    size = input_bytes(c.problem)
    if not any(lies_mn_major(c.problem, operand) for operand in "ab"):
        return rows * stage_k_bytes(c)
    row_bytes, span = rows * size, row_bytes_of(c[swizzle])
    return np.where(mn_major, boxes_across(row_bytes, span) * span, row_bytes) * c["tile_k"]


@kept
def stage_k_bytes(c: Columns) -> IntColumn:
    """Bytes of K in one pipeline stage."""
    return c["tile_k"] * input_bytes(c.problem)


def _consumer_registers(c: Columns) -> IntColumn:
    pool = c["entry_registers"] * c["threads"] // wgmma.WARPGROUP_THREADS
    share = (pool - c["producer_registers"]) // c["consumer_warpgroups"]
    settable = setmaxnreg.settable(share, c.arch.registers_per_thread)
    return np.where(c["producer_registers"] == 0, 0, settable)


def _accumulator_registers(c: Columns) -> IntColumn:
    one_block = instruction(c.problem).accumulator_registers(c["tile_n"])
    return one_block * c["tile_m"] // (wgmma.M * c["team"])


@kept
def m64_blocks(c: Columns) -> IntColumn:
    """Blocks of 64 rows, those of one instruction, that each consumer warpgroup owns of a tile."""
    column: IntColumn = np.maximum(c["tile_m"] // (wgmma.M * c["team"]), 1)
    return column


def _held_registers(c: Columns) -> IntColumn:
    """Accumulators, twice if sums are promoted; fragments of a stage of A if A is in registers; and the epilogue's."""
    sums = 2 if c.problem.numerics == "promoted" else 1
    steps = stage_k_bytes(c) // wgmma.K_BYTES
    held_a = wgmma.A_REGISTERS * steps * m64_blocks(c) + FRAGMENT_ADDRESSES
    fragments = np.where(c["a_source"] == A_REGISTERS, held_a, 0)
    return sums * c["accumulator_registers"] + fragments + finish_registers(c)


def finish_registers(c: Columns) -> int:
    """Registers of an epilogue that reads a source, a bias or scales or computes an exponential; 0 for others."""
    parts = c.problem.epilogue_parts
    both_sets = ROWWISE_BIAS_REGISTERS if {"scaled_rowwise", "bias"} <= parts else 0
    return both_sets + (ERF_REGISTERS if "gelu" in parts else FINISH_REGISTERS if parts & _READING_PARTS else 0)


def _staged_columns(c: Columns) -> IntColumn:
    eights = -(-c["tile_n"] * _STAGED_HALVES.take(c["epilogue"]) // (2 * wgmma.N_STEP))
    column: IntColumn = eights * wgmma.N_STEP
    return column


def _store_box_n(c: Columns) -> IntColumn:
    """Columns of one store: the first of `STORE_BOX_BYTES` that divides the staged columns, else all of them."""
    size = output_bytes(c.problem)
    staged = np.where(c["staged_columns"] == 0, c["tile_n"], c["staged_columns"])
    box = staged
    for width in (width_bytes // size for width_bytes in reversed(STORE_BOX_BYTES)):
        box = np.where(staged % width == 0, width, box)
    return box


def slices(c: Columns) -> IntColumn:
    """Slices of K of one tile, by split-K or by a cluster along K."""
    return c["split_k"] * c["cluster_k"]


def slice_stages(c: Columns) -> IntColumn:
    """Pipeline stages of the longest slice of K of a tile."""
    return -(-c["k_iterations"] // slices(c))


def streams_weights(problem: Gemm) -> bool:
    """Whether memory sets the pace, because a problem has few rows of C."""
    return min(problem.m, problem.n) <= STREAMED_ROWS


def streams_large_rows(problem: Gemm) -> bool:
    """Whether rows of K-major weights stream, so many that clusters along K pay even if tiles fill the GPU."""
    weights_bytes = max(problem.m, problem.n) * problem.k * problem.batch * input_bytes(problem)
    few, large = min(problem.m, problem.n) <= WHOLE_ROWS_UP_TO, weights_bytes >= LARGE_WEIGHTS_BYTES
    return few and large and not lies_mn_major(problem, operand_streamed(problem))


def stored_row_bytes(c: Columns) -> IntColumn:
    """Bytes of a row of C in one box of a TMA store."""
    return np.where(c["swap_ab"] == 1, SWAPPED_STORE_BYTES, c["store_box_n"] * output_bytes(c.problem))


def _staged_bytes(c: Columns) -> IntColumn:
    parts = c["consumer_warpgroups"] // c["team"]
    staged = parts * c["tile_m"] * c["staged_columns"] * output_bytes(c.problem)
    alone = c["cluster_k"] == 1
    if alone.all():
        return staged
    return np.where(alone, staged, c["team"] * c["cluster_k"] * _share_groups(c) * GROUP_BYTES)


def _share_groups(c: Columns) -> IntColumn:
    """Groups of 64 rows by eight columns that each block of a cluster along K writes for one warpgroup."""
    return -(-m64_blocks(c) * (c["tile_n"] // wgmma.N_STEP) // c["cluster_k"])


def _smem_bytes(c: Columns) -> IntColumn:
    tail = c["stages"] * BARRIER_BYTES_PER_STAGE + c["consumer_warpgroups"] * FLAG_BYTES
    return _align(_align(c["staged_bytes"]) + c["stages"] * c["stage_bytes"] + tail)


def _workspace_bytes(c: Columns) -> IntColumn:
    """Device memory of partial sums and semaphores.

    Split-K: the sums of every slice of every tile. Stream-K: those of every owner of a shared tile and of every peer,
    each of which is at most one per multiprocessor.
    """
    sums, semaphores = c["tile_m"] * c["tile_n"] * WORD_BYTES, c["team"] * SEMAPHORE_BYTES
    each: IntColumn = c["split_k"] * sums + semaphores
    whole = counted(c["tiles_m"], c["tiles_n"], c["cluster_size"], c.problem.batch, each)
    split = np.where(c["split_k"] > 1, whole, 0)
    return np.where(c["stream_k"] == 1, c.device.sm_count * (2 * sums + semaphores), split)


DERIVED: Final[tuple[Derived, ...]] = (
    Derived("team", ("schedule", "consumer_warpgroups"),
            lambda c: np.where(c["schedule"] == SCHEDULE_PINGPONG, 1, c["consumer_warpgroups"]), False,
            "consumer warpgroups that share one tile"),
    Derived("threads", ("schedule", "consumer_warpgroups"),
            lambda c: wgmma.WARPGROUP_THREADS * (c["consumer_warpgroups"] + (c["schedule"] != SCHEDULE_MULTISTAGE)),
            True, "threads of a block: the consumers, and a producer warpgroup unless the schedule has none"),
    Derived("entry_registers", ("threads",), lambda c: c.arch.registers_for(c["threads"]), False,
            "registers per thread when a block starts"),
    Derived("accumulator_registers", ("tile_m", "tile_n", "team"),
            _accumulator_registers, False,
            "32-bit accumulators per consumer thread"),
    Derived("held_registers",
            ("accumulator_registers", "tile_m", "tile_k", "team", "a_source"), _held_registers, False,
            "registers that a consumer thread holds at once"),
    Derived("consumer_registers", ("consumer_warpgroups", "threads", "entry_registers", "producer_registers"),
            _consumer_registers, True, "registers that setmaxnreg gives a consumer thread; 0 leaves them alone"),
    Derived("instruction_n", ("tile_n", "instructions_n"), lambda c: c["tile_n"] // c["instructions_n"], True,
            "N of one wgmma"),
    Derived("staged_columns", ("epilogue", "tile_n"), _staged_columns, False,
            "columns of C staged in shared memory at a time"),
    Derived("store_box_n", ("staged_columns",), _store_box_n, True, "columns of one TMA store of C"),
    Derived("staged_bytes", ("tile_m", "tile_n", "staged_columns", "consumer_warpgroups", "team", "cluster_k"),
            _staged_bytes, False, "shared memory of the staged C, or of the sums that a cluster along K exchanges"),
    Derived("tile_a_bytes", ("tile_m", "tile_k", "swizzle_a", "swap_ab"),
            lambda c: _tile_bytes(c, c["tile_m"], "swizzle_a", mn_major_a(c)), False,
            "shared memory of A in one stage"),
    Derived("tile_b_bytes", ("tile_n", "tile_k", "swizzle_b", "swap_ab"),
            lambda c: _tile_bytes(c, c["tile_n"], "swizzle_b", mn_major_b(c)), False,
            "shared memory of B in one stage"),
    Derived("stage_bytes", ("tile_a_bytes", "tile_b_bytes"),
            lambda c: _align(c["tile_a_bytes"]) + _align(c["tile_b_bytes"]), False,
            "shared memory of one pipeline stage, A and B"),
    Derived("shared_memory_bytes", ("stages", "stage_bytes", "staged_bytes", "consumer_warpgroups"), _smem_bytes, True,
            "dynamic shared memory of a block: the staged C, the stages, barriers, flags"),
    Derived("cluster_size", ("cluster_m", "cluster_n", "cluster_k"),
            lambda c: c["cluster_m"] * c["cluster_n"] * c["cluster_k"], False, "blocks of one cluster"),
    Derived("tiles_m", ("swap_ab", "tile_m", "cluster_m"), lambda c: -(-extent_m(c) // (c["tile_m"] * c["cluster_m"])),
            False, "cluster tiles along M; the last may be partial"),
    Derived("tiles_n", ("swap_ab", "tile_n", "cluster_n"), lambda c: -(-extent_n(c) // (c["tile_n"] * c["cluster_n"])),
            False, "cluster tiles along N; the last may be partial"),
    Derived("k_iterations", ("tile_k",), lambda c: -(-c.problem.k // c["tile_k"]), False,
            "pipeline stages of one tile, over all its slices of K"),
    Derived("splits", ("split_k",), lambda c: (c["split_k"] > 1).astype(np.int64), True,
            "whether different blocks multiply slices of K of one tile"),
    Derived("workspace_bytes",
            ("split_k", "stream_k", "tiles_m", "tiles_n", "tile_m", "tile_n", "cluster_size", "team"), _workspace_bytes,
            False, "device memory of partial sums and semaphores: exact for split-K, an upper bound for stream-K"),
    Derived("a_mn_major", ("swap_ab",), lambda c: mn_major_a(c).astype(np.int64), True,
            "whether A is M-major in shared memory"),
    Derived("b_mn_major", ("swap_ab",), lambda c: mn_major_b(c).astype(np.int64), True,
            "whether B is N-major in shared memory"),
)  # fmt: skip
