"""What is legal for `sm90_wgmma`: limits of the problem, the instruction, TMA, shared memory and registers."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import BoolColumn, Columns
from space.families.sm90_wgmma.knobs import EPILOGUE_TMA
from space.problem import DTYPE_BYTES
from space.rules import Rule

#: A TMA box has at most this many elements in a dimension (CUDA driver API, cuTensorMapEncodeTiled).
TMA_BOX_ROWS: Final = 256
#: TMA strides and the innermost box are multiples of this many bytes (same source).
TMA_ALIGN_BYTES: Final = 16
#: Accumulators that fit under the setmaxnreg split, by consumer warpgroups; beyond them ptxas spills.
ACCUMULATOR_LIMIT: Final = {1: 208, 2: 208, 3: 128}
#: Registers that ptxas needs beside one instruction's accumulators.
INSTRUCTION_EXTRA_REGISTERS: Final = 26

_TMA = "CUDA driver API, cuTensorMapEncodeTiled"
_WGMMA = "PTX ISA 9.0 §9.7.15, wgmma.mma_async"


def _pitch_bytes(c: Columns) -> int:
    return c.problem.k * DTYPE_BYTES[c.problem.dtype_a]


def _c_pitch_bytes(c: Columns) -> int:
    return c.problem.n * DTYPE_BYTES[c.problem.dtype_c]


def _tile_k_bytes(c: Columns) -> int:
    return int(c["tile_k"][0]) * DTYPE_BYTES[c.problem.dtype_a]


def _accumulators_fit(c: Columns) -> BoolColumn:
    limit = np.array([0, *ACCUMULATOR_LIMIT.values()])[c["consumer_warpgroups"]]
    return c["accumulator_registers"] <= limit


def _smem_numbers(c: Columns) -> str:
    row = {name: int(c[name][0]) for name in ("tile_m", "tile_n", "tile_k", "stages", "shared_memory_bytes")}
    parts = f"({row['tile_m']}·{row['tile_k']} + {row['tile_n']}·{row['tile_k']})·2 B · {row['stages']} stages"
    if c["epilogue"][0] == EPILOGUE_TMA:
        parts += f" + {row['tile_m']}·{row['tile_n']}·2 B of C"
    limit = c.arch.smem_per_block_bytes
    return f"{parts} + barriers = {row['shared_memory_bytes']:,} B > {limit:,} B on {c.arch.name}"


LEGAL: Final[tuple[Rule, ...]] = (
    Rule("arch.wgmma", "wgmma and setmaxnreg exist on sm_90a only", _WGMMA, (),
         lambda c: c.arch.wgmma, lambda c: f"{c.arch.name} has no wgmma; build for sm_90a"),
    Rule("problem.dtype", "this kernel multiplies bf16 by bf16 into f32 and writes bf16",
         "workers/kernels/sm90_wgmma", (), lambda c: c.problem.dtype == "bf16",
         lambda c: f"dtype {c.problem.dtype}"),
    Rule("problem.layout", "this kernel reads A[M,K] and B[N,K], both K-major: layout nt",
         "workers/kernels/sm90_wgmma", (), lambda c: c.problem.layout == "nt",
         lambda c: f"layout {c.problem.layout}"),
    Rule("problem.batch", "this kernel computes one product a launch",
         "workers/kernels/sm90_wgmma", (), lambda c: c.problem.batch == 1, lambda c: f"batch {c.problem.batch}"),
    Rule("tma.stride", "rows of A and B start at multiples of 16 bytes", f"{_TMA}: globalStrides", (),
         lambda c: _pitch_bytes(c) % TMA_ALIGN_BYTES == 0,
         lambda c: f"k = {c.problem.k} makes rows of {_pitch_bytes(c):,} B, {_pitch_bytes(c) % 16} B past a multiple "
                   f"of 16; k = {-(-c.problem.k // 8) * 8} would do"),
    Rule("wgmma.m", "each consumer warpgroup owns a multiple of the instruction's 64 rows", _WGMMA,
         ("tile_m", "consumer_warpgroups"), lambda c: c["tile_m"] % (64 * c["consumer_warpgroups"]) == 0,
         lambda c: f"tile_m {c['tile_m'][0]} is no multiple of 64·{c['consumer_warpgroups'][0]}"),
    Rule("wgmma.n", "N of the 16-bit instruction is 8 to 256 in steps of 8", _WGMMA, ("tile_n",),
         lambda c: (c["tile_n"] % 8 == 0) & (c["tile_n"] >= 8) & (c["tile_n"] <= 256),
         lambda c: f"tile_n {c['tile_n'][0]}"),
    Rule("registers.accumulator", "accumulators fit beside addresses under the setmaxnreg split, without spills",
         "65,536 registers a block, 255 a thread; NVRTC's spill report",
         ("accumulator_registers", "consumer_warpgroups"), _accumulators_fit,
         lambda c: f"{c['tile_m'][0]}·{c['tile_n'][0]}/(128·{c['consumer_warpgroups'][0]}) = "
                   f"{c['accumulator_registers'][0]} accumulators a thread > "
                   f"{ACCUMULATOR_LIMIT[int(c['consumer_warpgroups'][0])]} with "
                   f"{c['consumer_warpgroups'][0]} consumer warpgroups"),
    Rule("registers.instruction", "the accumulators of one instruction fit the registers that a thread has at entry",
         "ptxas C7602: it needs N/2 + 26 of them before setmaxnreg has given any", ("tile_n", "entry_registers"),
         lambda c: c["tile_n"] // 2 + INSTRUCTION_EXTRA_REGISTERS <= c["entry_registers"],
         lambda c: f"{c['tile_n'][0]}/2 + {INSTRUCTION_EXTRA_REGISTERS} = "
                   f"{c['tile_n'][0] // 2 + INSTRUCTION_EXTRA_REGISTERS} registers > {c['entry_registers'][0]} "
                   f"at entry of {c['threads'][0]} threads"),
    Rule("registers.pool", "the setmaxnreg split takes no more registers than the block has at entry",
         "PTX ISA 9.0, setmaxnreg: counts 24 to 256 in steps of 8 from a per-block pool",
         ("producer_registers", "consumer_registers", "consumer_warpgroups"),
         lambda c: 128 * (c["producer_registers"] + c["consumer_warpgroups"] * c["consumer_registers"])
         <= c.arch.registers_per_block,
         lambda c: f"128·({c['producer_registers'][0]} + {c['consumer_warpgroups'][0]}·{c['consumer_registers'][0]})"
                   f" > {c.arch.registers_per_block:,}"),
    Rule("block.threads", "a block has at most 1,024 threads", "CUDA C++ Programming Guide, compute capabilities",
         ("threads",), lambda c: c["threads"] <= c.arch.threads_per_block,
         lambda c: f"{c['threads'][0]} threads > {c.arch.threads_per_block}"),
    Rule("swizzle.a", "tile_k is a whole number of A's swizzle spans", f"{_TMA}: inner box ≤ swizzle span",
         ("tile_k", "swizzle_a"), lambda c: c["tile_k"] * DTYPE_BYTES[c.problem.dtype_a] % c["swizzle_a"] == 0,
         lambda c: f"tile_k {c['tile_k'][0]} is {_tile_k_bytes(c)} B, no multiple of {c['swizzle_a'][0]} B"),
    Rule("swizzle.b", "tile_k is a whole number of B's swizzle spans", f"{_TMA}: inner box ≤ swizzle span",
         ("tile_k", "swizzle_b"), lambda c: c["tile_k"] * DTYPE_BYTES[c.problem.dtype_b] % c["swizzle_b"] == 0,
         lambda c: f"tile_k {c['tile_k'][0]} is {_tile_k_bytes(c)} B, no multiple of {c['swizzle_b'][0]} B"),
    Rule("tma.store_stride", "the TMA epilogue needs rows of C at multiples of 16 bytes", f"{_TMA}: globalStrides",
         ("epilogue",), lambda c: (c["epilogue"] != EPILOGUE_TMA) | (_c_pitch_bytes(c) % TMA_ALIGN_BYTES == 0),
         lambda c: f"n = {c.problem.n} makes rows of {_c_pitch_bytes(c):,} B"),
    Rule("smem.capacity", "all stages, the C tile and the barriers fit the opt-in shared memory of a block",
         "CUDA C++ Programming Guide, compute capabilities: 227 KiB on 9.0", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_per_block_bytes, _smem_numbers),
    Rule("cluster.size", "a cluster is portable", "CUDA C++ Programming Guide, thread block clusters: 8 blocks",
         ("cluster_size",), lambda c: c["cluster_size"] <= c.arch.cluster_portable,
         lambda c: f"{c['cluster_m'][0]}·{c['cluster_n'][0]} = {c['cluster_size'][0]} blocks > "
                   f"{c.arch.cluster_portable}"),
    Rule("multicast.slice_a", "each block of a cluster row loads a slice of A that is whole swizzle patterns",
         "8 rows a pattern: PTX ISA 9.0, Shared Memory Matrix Layout", ("tile_m", "cluster_n"),
         lambda c: (c["tile_m"] // c["cluster_n"]) % 8 == 0,
         lambda c: f"tile_m {c['tile_m'][0]} over {c['cluster_n'][0]} blocks is "
                   f"{c['tile_m'][0] / c['cluster_n'][0]:g} rows, no multiple of 8"),
    Rule("multicast.slice_b", "each block of a cluster column loads a slice of B that is whole swizzle patterns",
         "8 rows a pattern: PTX ISA 9.0, Shared Memory Matrix Layout", ("tile_n", "cluster_m"),
         lambda c: c["tile_n"] % (8 * c["cluster_m"]) == 0,
         lambda c: f"tile_n {c['tile_n'][0]} over {c['cluster_m'][0]} blocks is "
                   f"{c['tile_n'][0] / c['cluster_m'][0]:g} rows, no multiple of 8"),
    Rule("tma.box", "a TMA box has at most 256 rows", f"{_TMA}: boxDim", ("tile_m", "tile_n", "cluster_m", "cluster_n"),
         lambda c: (c["tile_m"] // c["cluster_n"] <= TMA_BOX_ROWS) & (c["tile_n"] // c["cluster_m"] <= TMA_BOX_ROWS),
         lambda c: f"boxes of {c['tile_m'][0] // c['cluster_n'][0]} and {c['tile_n'][0] // c['cluster_m'][0]} rows"),
)  # fmt: skip
