"""Derived values of `mma_sync`. The kernel asserts those marked `in_kernel` when it compiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import LINE_BYTES, WARP_THREADS, WORD_BYTES
from space.columns import Columns, Derived, IntColumn
from space.families.common import SEMAPHORE_BYTES, counted, extent_m, extent_n, input_bytes
from space.families.mma_sync.knobs import COPIES_TMA
from space.families.mma_sync.operands import mn_major
from space.families.mma_sync.stream_k import shared_tiles, sharing_blocks
from space.instructions import setmaxnreg
from space.instructions.tma import MBARRIER_BYTES
from space.instructions.wgmma import WARPGROUP_THREADS

#: Rows, columns and bytes of K of one instruction, whatever the dtype (PTX ISA: m16n8k8 of tf32, m16n8k16 of 16-bit,
#: m16n8k32 of 8-bit types).
INSTRUCTION_M, INSTRUCTION_N, INSTRUCTION_K_BYTES = 16, 8, 32
#: Rows of a fragment that one register of all lanes holds, and rows of 32-bit elements in the longest line of a span.
MATRIX_ROWS, WORD_SPAN_ROWS = 8, LINE_BYTES // WORD_BYTES
#: Registers that setmaxnreg leaves a thread of a producer warpgroup.
PRODUCER_REGISTERS: Final = 24
#: A producer warpgroup gives up registers if a multiprocessor has at least this many multiplying threads, and if every
#: thread starts with at least this many registers: of 40, ptxas takes 48.
GIVING_THREADS, GIVING_REGISTERS = 256, 48
#: Shared memory of a block starts at such an address and is a multiple of it; behind the ring lies a word of split-K.
SMEM_ALIGN_BYTES, FLAG_BYTES = 128, 16


def stage_k_bytes(c: Columns) -> IntColumn:
    """Bytes of K in one pipeline stage."""
    return c["tile_k"] * input_bytes(c.problem)


def barrier_bytes(c: Columns) -> IntColumn:
    """Bytes of the mbarriers of a ring that TMA fills, two for each stage."""
    column: IntColumn = 2 * MBARRIER_BYTES * c["stages"] * (c["copies"] == COPIES_TMA)
    return column


def _smem_bytes(c: Columns) -> IntColumn:
    used = c["stages"] * c["stage_bytes"] + FLAG_BYTES + barrier_bytes(c)
    return (used + SMEM_ALIGN_BYTES - 1) // SMEM_ALIGN_BYTES * SMEM_ALIGN_BYTES


def _producer_threads(c: Columns) -> IntColumn:
    """A warp, or a warpgroup where it has registers to give: setmaxnreg takes whole warpgroups."""
    multiply = c["consumer_threads"]
    gives = (multiply % WARPGROUP_THREADS == 0) & (multiply * c["blocks_per_sm"] >= GIVING_THREADS)
    gives &= c.arch.registers_for((multiply + WARPGROUP_THREADS) * c["blocks_per_sm"]) >= GIVING_REGISTERS
    column: IntColumn = np.where(gives, WARPGROUP_THREADS, WARP_THREADS) * (c["copies"] == COPIES_TMA)
    return column


def _entry_registers(c: Columns) -> IntColumn:
    """The four quarters of a multiprocessor hold the same number of warps, or room for it."""
    threads = c["threads"] * c["blocks_per_sm"]
    return c.arch.registers_for(-(-threads // WARPGROUP_THREADS) * WARPGROUP_THREADS)


def _consumer_registers(c: Columns) -> IntColumn:
    pool = c["entry_registers"] * c["threads"] - c["producer_registers"] * c["producer_threads"]
    settable = setmaxnreg.settable(pool // c["consumer_threads"], c.arch.registers_per_thread)
    return np.where(c["producer_registers"] == 0, c["entry_registers"], settable)


def sum_bytes(c: Columns) -> int:
    """Bytes of one sum in registers."""
    return WORD_BYTES // 2 if c.problem.dtype_acc == "fp16" else WORD_BYTES


def _fragment_registers(c: Columns) -> IntColumn:
    """Registers of the fragments of one step: four per 16 rows of A, two per 8 columns of B."""
    column: IntColumn = c["warp_m"] // INSTRUCTION_M * 4 + c["warp_n"] // INSTRUCTION_N * 2
    return column


def _addresses(c: Columns, rows: IntColumn) -> IntColumn:
    """Addresses of a warp's rows of an operand that is MN-major: one for 16 rows, or for words one for each eight rows
    of a span, of which a line holds 32 rows."""
    if input_bytes(c.problem) == WORD_BYTES:
        return np.minimum(rows // MATRIX_ROWS, WORD_SPAN_ROWS // MATRIX_ROWS)
    column: IntColumn = -(-rows // INSTRUCTION_M)
    return column


def _held_registers(c: Columns) -> IntColumn:
    """Sums, twice if they are promoted; the fragments of the step at work and of the next; and the addresses of
    operands that are MN-major."""
    sums = 2 if c.problem.numerics == "promoted" else 1
    addresses = c["a_mn_major"] * _addresses(c, c["warp_m"]) + c["b_mn_major"] * _addresses(c, c["warp_n"])
    column: IntColumn = sums * c["accumulator_registers"] + 2 * c["fragment_registers"] + addresses
    return column


def slice_stages(c: Columns) -> IntColumn:
    """Pipeline stages of the longest slice of K of a tile."""
    return -(-c["k_iterations"] // c["split_k"])


def _workspace_bytes(c: Columns) -> IntColumn:
    sums = c["tile_m"] * c["tile_n"] * WORD_BYTES
    each = c["split_k"] * sums + SEMAPHORE_BYTES
    split = np.where(c["split_k"] > 1, counted(c["tiles_m"], c["tiles_n"], c.problem.batch, each), 0)
    streamed = (c["shared_tiles"] + c["sharing_blocks"]) * sums + c["shared_tiles"] * SEMAPHORE_BYTES
    return np.where(c["stream_k"] == 1, streamed, split)


DERIVED: Final[tuple[Derived, ...]] = (
    Derived("consumer_threads", ("warps_m", "warps_n"), lambda c: WARP_THREADS * c["warps_m"] * c["warps_n"], False,
            "threads of a block that multiply"),
    Derived("producer_threads", ("consumer_threads", "blocks_per_sm", "copies"), _producer_threads, True,
            "threads of a block that copy by TMA"),
    Derived("threads", ("consumer_threads", "producer_threads"),
            lambda c: c["consumer_threads"] + c["producer_threads"], True, "threads of a block"),
    Derived("warp_m", ("tile_m", "warps_m"), lambda c: c["tile_m"] // c["warps_m"], False, "rows of a warp's tile"),
    Derived("warp_n", ("tile_n", "warps_n"), lambda c: c["tile_n"] // c["warps_n"], False, "columns of a warp's tile"),
    Derived("accumulator_registers", ("warp_m", "warp_n"),
            lambda c: c["warp_m"] * c["warp_n"] * sum_bytes(c) // (WARP_THREADS * WORD_BYTES), False,
            "registers of sums per thread"),
    Derived("fragment_registers", ("warp_m", "warp_n"), _fragment_registers, False,
            "registers per thread of A and B for one step of K"),
    Derived("held_registers",
            ("accumulator_registers", "fragment_registers", "warp_m", "warp_n", "a_mn_major", "b_mn_major"),
            _held_registers, False, "registers that a thread holds at once in the main loop"),
    Derived("entry_registers", ("threads", "blocks_per_sm"),
            _entry_registers, False, "registers per thread that let all blocks of a multiprocessor fit"),
    Derived("producer_registers", ("producer_threads",),
            lambda c: PRODUCER_REGISTERS * (c["producer_threads"] == WARPGROUP_THREADS), True,
            "registers that setmaxnreg leaves a thread of the producer; 0 leaves them alone"),
    Derived("consumer_registers",
            ("entry_registers", "threads", "producer_registers", "producer_threads", "consumer_threads"),
            _consumer_registers, True, "registers of a thread that multiplies"),
    Derived("stage_bytes", ("tile_m", "tile_n", "tile_k"), lambda c: (c["tile_m"] + c["tile_n"]) * stage_k_bytes(c),
            False, "shared memory of one pipeline stage, A and B"),
    Derived("shared_memory_bytes", ("stages", "stage_bytes", "copies"), _smem_bytes, True,
            "dynamic shared memory of a block: the stages, their mbarriers, and a word of split-K"),
    Derived("tiles_m", ("swap_ab", "tile_m"), lambda c: -(-extent_m(c) // c["tile_m"]), False,
            "tiles along M; the last may be partial"),
    Derived("tiles_n", ("swap_ab", "tile_n"), lambda c: -(-extent_n(c) // c["tile_n"]), False,
            "tiles along N; the last may be partial"),
    Derived("k_iterations", ("tile_k",), lambda c: -(-c.problem.k // c["tile_k"]), False,
            "pipeline stages of one tile, over all its slices of K"),
    Derived("splits", ("split_k",), lambda c: (c["split_k"] > 1).astype(np.int64), True,
            "whether different blocks multiply slices of K of one tile"),
    Derived("shared_tiles", ("stream_k", "tiles_m", "tiles_n", "blocks_per_sm"), shared_tiles, False,
            "tiles whose stages all blocks share"),
    Derived("sharing_blocks", ("shared_tiles", "k_iterations", "blocks_per_sm", "stream_k"), sharing_blocks, False,
            "blocks that share them"),
    Derived("workspace_bytes",
            ("split_k", "tiles_m", "tiles_n", "tile_m", "tile_n", "stream_k", "shared_tiles", "sharing_blocks"),
            _workspace_bytes, False,
            "device memory of partial sums: those of every slice of a tile, and one semaphore per tile"),
    Derived("a_mn_major", ("swap_ab",), lambda c: mn_major(c, "a").astype(np.int64), True,
            "whether A is M-major in shared memory"),
    Derived("b_mn_major", ("swap_ab",), lambda c: mn_major(c, "b").astype(np.int64), True,
            "whether B is N-major in shared memory"),
)  # fmt: skip
