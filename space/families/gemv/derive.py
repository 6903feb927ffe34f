"""Derived values of `gemv`. The kernel asserts those marked `in_kernel` when it compiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import VECTOR_BYTES, WARP_THREADS, WORD_BYTES
from space.columns import BoolColumn, Columns, Derived, IntColumn
from space.config import Config
from space.families.common import SEMAPHORE_BYTES, counted, epilogue_constants, input_bytes
from space.families.gemv.knobs import A_SMEM
from space.kinds.gemm import Gemm
from space.knobs import KnobValue

#: Registers for indices and arguments, which `held_registers` does not count; and those of an epilogue, which it
#: counts.
BESIDE_REGISTERS, EPILOGUE_REGISTERS = 30, 16
#: Further ones on sm_120a and sm_121a: without them, 2 of 120 random legal configs spilled.
CONSUMER_BLACKWELL_REGISTERS: Final = 8
#: Largest A that stays in L1 while B streams past.
MAX_CACHED_BYTES: Final = 64 * 1024


def beside_registers(c: Columns) -> int:
    """Registers that `held_registers` does not count."""
    return BESIDE_REGISTERS + (CONSUMER_BLACKWELL_REGISTERS if "mma_fp4" in c.arch.features else 0)


def row_bytes(problem: Gemm) -> int:
    """Bytes from one row of B to the next."""
    return problem.k * input_bytes(problem)


def fits_l1(problem: Gemm) -> bool:
    """Whether A stays in L1 while B streams past."""
    return problem.m * row_bytes(problem) <= MAX_CACHED_BYTES


def transposed_a(problem: Gemm) -> bool:
    """Whether A has several rows that are not contiguous; a single row always is."""
    return problem.layout[0] == "t" and problem.m > 1


def words(c: Columns) -> IntColumn:
    """Registers per load."""
    return np.maximum(c["load_bytes"] // WORD_BYTES, 1)


def _gathers(c: Columns) -> BoolColumn:
    """Whether warps of a block exchange sums through shared memory."""
    return (c["split_warps"] > 1) | (c["split_k"] > 1)


def _reduction_bytes(c: Columns) -> IntColumn:
    """Bytes of the sums of every warp of a team, and of a flag that marks the last block of split-K."""
    sums = np.where(_gathers(c), c["split_warps"] * c["outputs"], 1) * WORD_BYTES
    return -(-(sums + WORD_BYTES) // VECTOR_BYTES) * VECTOR_BYTES


def _staged_pitch(c: Columns) -> IntColumn:
    pitch = -(-c["slice_pieces"] * c["load_bytes"] // VECTOR_BYTES) * VECTOR_BYTES
    return np.where(c["a_path"] == A_SMEM, pitch, 0)


def _held_registers(c: Columns) -> IntColumn:
    """Sums, twice if promoted; loads in flight, half as much again for loads narrower than a register; a piece of each
    row of A; addresses of the rows of B; elements converted to f32; and the epilogue's."""
    per_word = np.minimum(c["load_bytes"], WORD_BYTES) // input_bytes(c.problem)
    unpacked = 0 if c.problem.dtype_acc == "s32" else (c["columns"] + 1) * np.maximum(per_word, 1)
    loads = c["buffers"] * c["unroll"] * c["columns"] * words(c)
    loads = np.where(c["load_bytes"] < WORD_BYTES, loads * 3 // 2, loads)
    sums = c["rows"] * c["columns"] * (2 if c.problem.numerics == "promoted" else 1)
    beside = unpacked + (EPILOGUE_REGISTERS if c.problem.epilogue_parts else 0)
    column: IntColumn = sums + c["rows"] * words(c) + loads + 2 * c["columns"] + beside
    return column


def _entry_registers(c: Columns) -> IntColumn:
    return c.arch.registers_for(c["threads"] * c["blocks_per_sm"])


def _workspace_bytes(c: Columns) -> IntColumn:
    each = c["split_k"] * c["outputs"] * WORD_BYTES + SEMAPHORE_BYTES
    return np.where(c["split_k"] > 1, counted(c["tiles_n"], c.problem.batch, each), 0)


DERIVED: Final[tuple[Derived, ...]] = (
    Derived("threads", ("warps",), lambda c: WARP_THREADS * c["warps"], False, "threads per block"),
    Derived("team", ("lanes", "split_warps"), lambda c: c["lanes"] * c["split_warps"], False,
            "threads that split K of a column among them"),
    Derived("tile_n", ("threads", "team", "columns"),
            lambda c: np.maximum(c["threads"] // c["team"], 1) * c["columns"], True,
            "columns of C that a block computes together"),
    Derived("outputs", ("rows", "tile_n"), lambda c: c["rows"] * c["tile_n"], False,
            "elements of C that a block computes together"),
    Derived("griddepcontrol", ("pdl",), lambda c: np.full_like(c["pdl"], "clusters" in c.arch.features), True,
            "whether the target has griddepcontrol, by which a dependent launch waits"),
    Derived("splits", ("split_k",), lambda c: (c["split_k"] > 1).astype(np.int64), True,
            "whether different blocks multiply slices of K"),
    Derived("reduction_bytes", ("split_warps", "split_k", "outputs"), _reduction_bytes, True,
            "shared memory of the sums of a team"),
    Derived("entry_registers", ("threads", "blocks_per_sm"), _entry_registers, False,
            "registers per thread that let all blocks of a multiprocessor fit"),
    Derived("held_registers", ("rows", "columns", "unroll", "buffers", "load_bytes"), _held_registers, False,
            "registers that a thread holds at once"),
    Derived("pieces", ("load_bytes",), lambda c: row_bytes(c.problem) // c["load_bytes"], False,
            "loads per row of B"),
    Derived("slice_pieces", ("pieces", "split_k"), lambda c: -(-c["pieces"] // c["split_k"]), False,
            "loads per row of B in the longest slice of K"),
    Derived("staged_pitch_bytes", ("slice_pieces", "load_bytes", "a_path"), _staged_pitch, False,
            "shared memory per row of A"),
    Derived("shared_memory_bytes", ("reduction_bytes", "staged_pitch_bytes", "rows"),
            lambda c: c["reduction_bytes"] + c["rows"] * c["staged_pitch_bytes"], False,
            "dynamic shared memory of a block: the sums of a team and a slice of A"),
    Derived("tiles_n", ("tile_n",), lambda c: -(-c.problem.n // c["tile_n"]), False,
            "tiles along N; the last may be partial"),
    Derived("steps", ("slice_pieces", "team", "unroll"), lambda c: -(-c["slice_pieces"] // (c["team"] * c["unroll"])),
            False, "times per tile that a thread waits for its loads"),
    Derived("in_flight_bytes", ("threads", "blocks_per_sm", "columns", "unroll", "buffers", "load_bytes"),
            lambda c: c["threads"] * c["blocks_per_sm"] * c["columns"] * c["unroll"] * c["buffers"] * c["load_bytes"],
            False, "bytes that a multiprocessor has in flight"),
    Derived("workspace_bytes", ("split_k", "tiles_n", "outputs"), _workspace_bytes, False,
            "device memory of split-K: the sums of every slice and one semaphore per tile"),
)  # fmt: skip


def problem_constants(problem: Gemm, config: Config) -> dict[str, KnobValue]:
    """Members of the kernel's `Config` struct that follow from the problem: dtypes and the epilogue."""
    constants: dict[str, KnobValue] = {
        "element_a": problem.dtype_a,
        "element_b": problem.dtype_b,
        "output": problem.dtype_c,
        "integers": int(problem.dtype_acc == "s32"),
        # The shared epilogue also serves a family that may compute the transposed product.
        "swap_ab": 0,
    }
    return constants | epilogue_constants(problem)
