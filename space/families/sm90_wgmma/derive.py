"""Derived values of `sm90_wgmma`. Those marked `in_kernel` are asserted by the kernel when it compiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import Columns, Derived, IntColumn
from space.families.sm90_wgmma.knobs import EPILOGUE_TMA
from space.problem import DTYPE_BYTES

#: Operand tiles start at multiples of this, so that the 128-byte swizzle pattern starts with them
#: (PTX ISA, "Shared Memory Matrix Layout": the pattern of the widest mode repeats every 1,024 bytes).
TILE_ALIGN_BYTES: Final = 1024
#: One full and one empty mbarrier, 8 bytes each, per stage.
BARRIER_BYTES_PER_STAGE: Final = 16

#: A thread addresses at most this many registers (CUDA C++ Programming Guide, compute capabilities).
MOST_REGISTERS: Final = 255


def _align(value: IntColumn) -> IntColumn:
    return -(-value // TILE_ALIGN_BYTES) * TILE_ALIGN_BYTES


def _operand_bytes(c: Columns) -> int:
    return DTYPE_BYTES[c.problem.dtype_a]


def _consumer_registers(c: Columns) -> IntColumn:
    # One consumer: 256 threads already own 255 registers each. Two: the CUTLASS splits of the 168 that
    # 384 threads start with. Three: 128 a thread at entry, of which the producer gives most away.
    two = np.where(c["accumulator_registers"] > 200, 240, 232)
    return np.select([c["consumer_warpgroups"] == 1, c["consumer_warpgroups"] == 2], [0, two], 160)


def _producer_registers(c: Columns) -> IntColumn:
    two = np.where(c["accumulator_registers"] > 200, 24, 40)
    return np.select([c["consumer_warpgroups"] == 1, c["consumer_warpgroups"] == 2], [0, two], 32)


def _store_box_n(c: Columns) -> IntColumn:
    n = c["tile_n"]
    return np.select([n % 64 == 0, n % 32 == 0, n % 16 == 0], [64, 32, 16], 8)


def _smem_bytes(c: Columns) -> IntColumn:
    c_bytes = np.where(c["epilogue"] == EPILOGUE_TMA, c["tile_m"] * c["tile_n"] * DTYPE_BYTES[c.problem.dtype_c], 0)
    return _align(c["stages"] * c["stage_bytes"] + c_bytes + c["stages"] * BARRIER_BYTES_PER_STAGE)


def _tiles(extent: int, tile: IntColumn) -> IntColumn:
    return -(-extent // tile)


DERIVED: Final[tuple[Derived, ...]] = (
    Derived("threads", ("consumer_warpgroups",), lambda c: 128 * (1 + c["consumer_warpgroups"]), True,
            "threads of a block: one producer warpgroup and the consumers"),
    Derived("entry_registers", ("threads",),
            lambda c: np.minimum(c.arch.registers_per_block // c["threads"] // 8 * 8, MOST_REGISTERS), False,
            "registers that a thread starts with"),
    Derived("accumulator_registers", ("tile_m", "tile_n", "consumer_warpgroups"),
            lambda c: c["tile_m"] * c["tile_n"] // (128 * c["consumer_warpgroups"]), False,
            "32-bit accumulators that one consumer thread holds"),
    Derived("producer_registers", ("accumulator_registers", "consumer_warpgroups"), _producer_registers, True,
            "setmaxnreg of the producer; 0 leaves it alone"),
    Derived("consumer_registers", ("accumulator_registers", "consumer_warpgroups"), _consumer_registers, True,
            "setmaxnreg of a consumer; 0 leaves it alone"),
    Derived("store_box_n", ("tile_n",), _store_box_n, True,
            "columns of one TMA store of C: the widest of 64, 32, 16, 8 that divides tile_n"),
    Derived("stage_bytes", ("tile_m", "tile_n", "tile_k"),
            lambda c: _align(c["tile_m"] * c["tile_k"] * _operand_bytes(c))
            + _align(c["tile_n"] * c["tile_k"] * _operand_bytes(c)), False,
            "shared memory of one pipeline stage, A and B"),
    Derived("shared_memory_bytes", ("stages", "stage_bytes", "epilogue", "tile_m", "tile_n"), _smem_bytes, True,
            "dynamic shared memory of a block: stages, the C tile of the TMA epilogue, barriers"),
    Derived("cluster_size", ("cluster_m", "cluster_n"), lambda c: c["cluster_m"] * c["cluster_n"], False,
            "blocks of one cluster"),
    Derived("tiles_m", ("tile_m", "cluster_m"),
            lambda c: _tiles(c.problem.m, c["tile_m"] * c["cluster_m"]), False,
            "cluster tiles along M, the last one perhaps partial"),
    Derived("tiles_n", ("tile_n", "cluster_n"),
            lambda c: _tiles(c.problem.n, c["tile_n"] * c["cluster_n"]), False,
            "cluster tiles along N, the last one perhaps partial"),
    Derived("k_iterations", ("tile_k",), lambda c: _tiles(c.problem.k, c["tile_k"]), False,
            "pipeline stages that one tile consumes"),
)  # fmt: skip
