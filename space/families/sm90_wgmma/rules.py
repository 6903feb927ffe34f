"""Legal rules of `sm90_wgmma`: limits of the instruction, TMA, clusters, shared memory and registers."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.columns import BoolColumn, Columns, IntColumn, among, kept
from space.families.common import (
    edge_rule,
    grid_rule,
    input_bytes,
    output_bytes,
    packed_rows_rule,
    slices_rule,
    sums_range_rule,
    workspace_rule,
)
from space.families.sm90_wgmma import knobs
from space.families.sm90_wgmma.derive import finish_registers, m64_blocks, slices, stage_k_bytes
from space.families.sm90_wgmma.operands import instruction, mn_major_a, mn_major_b, needs_packing, pitch_bytes
from space.instructions import setmaxnreg, tma, wgmma
from space.kinds.gemm import Gemm
from space.layouts.boxes import whole_boxes
from space.layouts.swizzle import CORE_ROWS, WIDEST, row_bytes_of, whole_patterns
from space.rules import Rule

#: Bytes of K that a stage may hold. Below 64 each barrier covers fewer than two instructions; memory may answer 512
#: bytes of one row faster than 256, and longer stages leave too few of them.
STAGE_K_BYTES: Final = (64, 128, 256, 512)
#: Registers that the main loop and the epilogue need beside what a consumer thread holds. With fewer, ptxas spills.
BESIDE_HELD_REGISTERS: Final = 48
#: A plain tile needs this many fewer. A tile is plain if it is not transposed, is one instruction wide, sums all of K,
#: gives each consumer at most two blocks of 64 rows, has an epilogue that reads nothing and a producer of 40 registers.
PLAIN_SPARES: Final = 8
#: A tile whose epilogue reads nothing may need this many fewer, so that 256×208 fits: one instruction wide, at most two
#: blocks of 64 rows, in stages of this much K. Then it has to be lean: a single block's that sums all of K, and leaves
#: by halves through TMA or, untransposed, by stores of whole 16 bytes.
LEAN_SPARES, MIN_LEAN_K_BYTES = 16, 128
#: `BESIDE_HELD_REGISTERS` without setmaxnreg, and without a producer, where consumers also load.
BESIDE_HELD_UNSPLIT, BESIDE_HELD_LOADING = 55, 96
#: Registers for the addresses and sums of split-K's shares, and how many more a transposed tile needs.
SPLIT_REGISTERS, SPLIT_SWAPPED = 24, 8
#: Stream-K: stages of this much K and tiles of this shape make a main loop in which ptxas does not move accumulators.
MIN_SHARED_K_BYTES, MIN_SHARED_N, MAX_SHARED_M = 128, 64, 128
#: Registers that ptxas needs beside the accumulators of one instruction.
INSTRUCTION_EXTRA_REGISTERS: Final = 26
#: Elements of K between two promotions of fp8 sums to f32.
PROMOTION_K: Final = 128

_SPAN = f"{tma.SOURCE}: inner box ≤ swizzle span"
_PATTERN = f"PTX ISA 9.0, Shared Memory Matrix Layout: a pattern has {CORE_ROWS} lines"
_KERNEL = "workers/kernels/sm90_wgmma"
#: What decides how many registers a consumer thread holds and may hold.
_HOLDING = ("held_registers", "consumer_registers", "entry_registers", "schedule", "swap_ab", "instructions_n",
            "tile_m", "tile_k", "team", "producer_registers")  # fmt: skip


def _c_pitch_bytes(c: Columns) -> int:
    problem: Gemm = c.problem
    return problem.n * output_bytes(problem)


@kept
def _held_limit(c: Columns) -> IntColumn:
    """Registers that a consumer thread may hold if it sums no slices of K; past `_spare_limit` in lean tiles."""
    light = np.bool_(finish_registers(c) == 0 and c.problem.numerics != "promoted")
    loop = (c["instructions_n"] == 1) & (stage_k_bytes(c) >= MIN_LEAN_K_BYTES) & (m64_blocks(c) <= 2)
    return np.where(loop & light & (c["consumer_registers"] > 0), _register_limit(c) + LEAN_SPARES, _spare_limit(c))


@kept
def _spare_limit(c: Columns) -> IntColumn:
    """The same, however a tile is stored."""
    return _register_limit(c) + np.where(_plain(c), PLAIN_SPARES, 0)


def _share_registers(c: Columns) -> IntColumn:
    return SPLIT_REGISTERS + SPLIT_SWAPPED * c["swap_ab"]


def _shared_limit(c: Columns) -> IntColumn:
    """Registers that a consumer thread may hold if it also sums shared tiles.

    Plain tiles of floats are summed by pairs of column groups, which takes no further registers.
    """
    pairs = _plain(c) & (c["tile_n"] % (2 * wgmma.N_STEP) == 0) & (c.problem.dtype_acc != "s32")
    return np.where(pairs, _spare_limit(c), _register_limit(c) - SPLIT_REGISTERS)


@kept
def _plain(c: Columns) -> BoolColumn:
    """Whether a tile is plain, as `PLAIN_SPARES` defines it."""
    narrow = (c["swap_ab"] == 0) & (c["instructions_n"] == 1) & (m64_blocks(c) <= 2)
    column: BoolColumn = narrow & (c["producer_registers"] == 40) & (finish_registers(c) == 0)
    return column


def _lean(c: Columns) -> BoolColumn:
    """Whether a tile is lean, as `LEAN_SPARES` says."""
    direct = (c["epilogue"] == knobs.EPILOGUE_DIRECT) & (c["swap_ab"] == 0) & np.bool_(_whole_rows(c))
    column: BoolColumn = _alone(c) & (direct | (c["epilogue"] == knobs.EPILOGUE_TMA_HALF) & _halves_fit(c))
    return column


def _halves_fit(c: Columns) -> BoolColumn:
    """Whether a lean tile may leave by halves: ptxas spills 4 bytes of a ping-pong of a K-major A that leaves
    transposed."""
    column: BoolColumn = (c["swap_ab"] == 0) | mn_major_a(c) | (c["schedule"] != knobs.SCHEDULE_PINGPONG)
    return column


def _alone(c: Columns) -> BoolColumn:
    """Whether a tile is a single block's that sums all of K."""
    column: BoolColumn = (c["stream_k"] == 0) & (slices(c) == 1) & (c["cluster_size"] == 1)
    return column


def _whole_rows(c: Columns) -> bool:
    """Whether rows of C start at multiples of 16 bytes."""
    return not tma.stride_gap_bytes(_c_pitch_bytes(c))


@kept
def _register_limit(c: Columns) -> IntColumn:
    split = c["consumer_registers"] - BESIDE_HELD_REGISTERS
    beside = np.where(c["schedule"] == knobs.SCHEDULE_MULTISTAGE, BESIDE_HELD_LOADING, BESIDE_HELD_UNSPLIT)
    return np.where(c["consumer_registers"] > 0, split, c["entry_registers"] - beside)


def _keeps_sums(c: Columns) -> BoolColumn:
    """Whether ptxas leaves the accumulators of a shared tile in place."""
    long = (stage_k_bytes(c) >= MIN_SHARED_K_BYTES) & (c["tile_n"] >= MIN_SHARED_N)
    column: BoolColumn = long & (c["instructions_n"] == 1) & (c["tile_m"] <= MAX_SHARED_M)
    return column


@kept
def _lines_a(c: Columns) -> IntColumn:
    """Lines of one span of a tile of A: its rows if A is K-major, else its extent along K."""
    return np.where(mn_major_a(c), c["tile_k"], c["tile_m"])


@kept
def _lines_b(c: Columns) -> IntColumn:
    """Lines of one span of a tile of B: its columns if B is K-major, else its extent along K."""
    return np.where(mn_major_b(c), c["tile_k"], c["tile_n"])


def _span_whole(c: Columns, operand: str) -> BoolColumn:
    """Whether boxes cut a K-major tile into whole spans of K; boxes of an MN-major tile may reach past it."""
    mn_major = mn_major_a(c) if operand == "a" else mn_major_b(c)
    return mn_major | whole_boxes(stage_k_bytes(c), row_bytes_of(c[f"swizzle_{operand}"]))


def _instruction_registers(c: Columns) -> IntColumn:
    """Registers that ptxas needs before a thread can issue one instruction."""
    return instruction(c.problem).accumulator_registers(c["instruction_n"]) + INSTRUCTION_EXTRA_REGISTERS


def _smem_numbers(c: Columns) -> str:
    size, size_c = input_bytes(c.problem), output_bytes(c.problem)
    m, n, k, stage = (c.first(name) for name in ("tile_m", "tile_n", "tile_k", "stage_bytes"))
    parts = f"({m}·{k} + {n}·{k})·{size} B" if (m + n) * k * size == stage else f"{stage:,} B in whole swizzle patterns"
    parts += f" · {c.first('stages')} stages"
    if c.first("cluster_k") > 1:
        parts += f" + {c.first('staged_bytes'):,} B of partial sums"
    elif c.first("staged_columns"):
        rows = m * c.first("consumer_warpgroups") // c.first("team")
        parts += f" + {rows}·{c.first('staged_columns')}·{size_c} B of C"
    used, limit = c.first("shared_memory_bytes"), c.arch.smem_per_block_bytes
    return f"{parts} + barriers = {used:,} B > {limit:,} B on {c.arch.name}"


def _leaner(c: Columns) -> str:
    """What to change first in a tile that is not lean, as `_lean` says; fewer columns where no epilogue makes it so."""
    size = output_bytes(c.problem)
    if not (_alone(c)[0] and _whole_rows(c)):
        return "a smaller tile_n"
    if c.first("swap_ab") and (size != 2 or not _halves_fit(c)[0]):
        return "swap_ab=0"
    return "epilogue=direct" if size == 1 else "epilogue=tma_half"


def _held_numbers(c: Columns, limit: IntColumn) -> str:
    accumulators, held = c.first("accumulator_registers"), c.first("held_registers")
    beside = ["a second set of sums"] * (c.problem.numerics == "promoted")
    beside += ["fragments of A"] * (c.first("a_source") == knobs.A_REGISTERS)
    beside += ["what the epilogue needs"] * (finish_registers(c) > 0)
    more = f", {held} with {' and '.join(beside)}," if beside else ""
    owned = c.first("consumer_registers") or c.first("entry_registers")
    return f"{accumulators} accumulators per thread{more} > {int(limit[0])} of its {owned} registers"


LEGAL: Final[tuple[Rule, ...]] = (
    Rule("arch.wgmma", "wgmma exists only on sm_90a", wgmma.SOURCE, (),
         lambda c: "wgmma" in c.arch.features, lambda c: f"{c.arch.name} has no wgmma; build for sm_90a"),
    Rule("problem.sums", "sums are f32 or s32", f"{_KERNEL}: its epilogue takes 32-bit sums", (),
         lambda c: c.problem.dtype_acc != "fp16",
         lambda c: f"f16 sums; use {'mma_sync, or ' * (c.problem.dtype_a == 'fp16')}f32 sums: wgmma is as fast with "
                   "them"),
    Rule("wgmma.k", "a stage holds 64, 128, 256 or 512 bytes of K", _KERNEL, ("tile_k",),
         lambda c: among(stage_k_bytes(c), STAGE_K_BYTES),
         lambda c: f"tile_k {c.first('tile_k')} is {int(stage_k_bytes(c)[0])} B of {c.problem.dtype_a}"),
    Rule("wgmma.m", f"each warpgroup takes a multiple of the instruction's {wgmma.M} rows of a tile", wgmma.SOURCE,
         ("tile_m", "team"), lambda c: c["tile_m"] % (wgmma.M * c["team"]) == 0,
         lambda c: f"tile_m {c.first('tile_m')} is not a multiple of {wgmma.M}·{c.first('team')}"),
    Rule("wgmma.n", "the dtypes have an instruction of this N: a multiple of 8, for integers above 32 a multiple of 16",
         wgmma.SOURCE, ("tile_n", "instructions_n"),
         lambda c: (c["tile_n"] % c["instructions_n"] == 0) & among(c["instruction_n"], instruction(c.problem).n),
         lambda c: f"tile_n {c.first('tile_n')} over {c.first('instructions_n')} instructions is N = "
                   f"{c.first('tile_n') / c.first('instructions_n'):g}"),
    Rule("wgmma.n_wide", "instructions side by side have N of 64 or more each",
         f"{_KERNEL}: each instruction reads A again, and below N = 64 it waits for shared memory",
         ("tile_n", "instructions_n"), lambda c: (c["instructions_n"] == 1) | (c["instruction_n"] >= 64),
         lambda c: f"{c.first('instructions_n')} instructions of N = {c.first('instruction_n')}"),
    Rule("wgmma.n_span", "instructions side by side start on whole swizzle spans of an MN-major B",
         "PTX ISA 9.0, Strides: N of an MN-major operand runs span by span",
         ("tile_n", "instructions_n", "swizzle_b", "swap_ab"),
         lambda c: ~mn_major_b(c) | (c["instructions_n"] == 1)
                   | whole_boxes(c["instruction_n"] * input_bytes(c.problem), row_bytes_of(c["swizzle_b"])),
         lambda c: f"N = {c.first('instruction_n')} is {c.first('instruction_n') * input_bytes(c.problem)} B, not a "
                   f"multiple of {int(row_bytes_of(c['swizzle_b'])[0])} B"),
    Rule("wgmma.a_registers",
         "A in registers comes by ldmatrix: K-major, with a 128-byte swizzle and without promotion", _KERNEL,
         ("a_source", "swizzle_a", "swap_ab"),
         lambda c: (c["a_source"] == knobs.A_SMEM) | ((c["swizzle_a"] == WIDEST.span_bytes) & ~mn_major_a(c)
                                                & (c.problem.numerics != "promoted")),
         lambda c: f"layout {c.problem.layout}, swizzle_a {c.first('swizzle_a')}, {c.problem.numerics} sums"),
    Rule("wgmma.promotion", f"a stage holds a multiple of the {PROMOTION_K} elements of K between promotions", _KERNEL,
         ("tile_k",), lambda c: c.problem.numerics != "promoted" or c["tile_k"] % PROMOTION_K == 0,
         lambda c: f"tile_k {c.first('tile_k')} is not a multiple of {PROMOTION_K}"),
    Rule("schedule.pingpong", "the ping-pong schedule has exactly two consumers", _KERNEL,
         ("schedule", "consumer_warpgroups"),
         lambda c: (c["schedule"] != knobs.SCHEDULE_PINGPONG) | (c["consumer_warpgroups"] == 2),
         lambda c: f"consumer_warpgroups {c.first('consumer_warpgroups')}"),
    Rule("registers.split", "setmaxnreg moves registers exactly when a producer feeds several consumers",
         "65,536 registers per block, 255 per thread: up to 256 threads start with all that they can address",
         ("producer_registers", "schedule", "consumer_warpgroups"),
         lambda c: (c["producer_registers"] > 0)
                   == (c["schedule"] != knobs.SCHEDULE_MULTISTAGE) & (c["consumer_warpgroups"] > 1),
         lambda c: f"producer_registers {c.first('producer_registers')} with {c.first('threads')} threads"),
    Rule("registers.producer", "a producer in a cluster keeps 40 registers", "NVRTC's spill report",
         ("producer_registers", "cluster_size"),
         lambda c: (c["producer_registers"] != setmaxnreg.MIN_REGISTERS) | (c["cluster_size"] == 1),
         lambda c: f"producer_registers 24 in a cluster of {c.first('cluster_size')}"),
    Rule("registers.held", "a consumer thread's values fit its registers without spilling",
         "65,536 registers per block, 255 per thread; NVRTC's spill report", _HOLDING,
         lambda c: c["held_registers"] <= _held_limit(c),
         lambda c: _held_numbers(c, _held_limit(c))),
    Rule("registers.lean", "a tile that leaves few registers is a single block's, sums all of K, and leaves by halves "
         "through TMA or, untransposed, by direct stores of whole 16 bytes; by ping-pong it does not leave a K-major A "
         "transposed", "NVRTC's spill report",
         (*_HOLDING, "epilogue", "stream_k", "split_k", "cluster_k", "cluster_size"),
         lambda c: (c["held_registers"] <= _spare_limit(c)) | _lean(c) | (c["held_registers"] > _held_limit(c)),
         lambda c: f"{_held_numbers(c, _spare_limit(c))}; use {_leaner(c)}"),
    Rule("registers.instruction", "one instruction's accumulators fit a thread's registers at entry",
         "ptxas C7602: it needs N/2 + 26 registers before setmaxnreg grants any", ("instruction_n", "entry_registers"),
         lambda c: _instruction_registers(c) <= c["entry_registers"],
         lambda c: f"{c.first('instruction_n')}/2 + {INSTRUCTION_EXTRA_REGISTERS} = "
                   f"{int(_instruction_registers(c)[0])} registers > "
                   f"{c.first('entry_registers')} at entry to a block of {c.first('threads')} threads"),
    Rule("swizzle.a", "a stage of a K-major A is a whole number of its swizzle spans", _SPAN,
         ("tile_k", "swizzle_a", "swap_ab"), lambda c: _span_whole(c, "a"),
         lambda c: f"{int(stage_k_bytes(c)[0])} B of K is not a multiple of {c.first('swizzle_a')} B"),
    Rule("swizzle.b", "a stage of a K-major B is a whole number of its swizzle spans", _SPAN,
         ("tile_k", "swizzle_b", "swap_ab"), lambda c: _span_whole(c, "b"),
         lambda c: f"{int(stage_k_bytes(c)[0])} B of K is not a multiple of {c.first('swizzle_b')} B"),
    Rule("cluster.size", "a cluster has at most 16 blocks, the most that sm_90a can launch",
         "CUDA Hopper Tuning Guide: cudaFuncAttributeNonPortableClusterSizeAllowed above 8",
         ("cluster_size",), lambda c: c["cluster_size"] <= c.arch.cluster_largest,
         lambda c: f"{c.first('cluster_m')}·{c.first('cluster_n')}·{c.first('cluster_k')} = "
                   f"{c.first('cluster_size')} blocks"),
    Rule("cluster.k_alone", "a cluster along K excludes clusters along M or N and split-K",
         f"{_KERNEL}/cluster_k.cuh", ("cluster_k", "cluster_m", "cluster_n", "split_k"),
         lambda c: (c["cluster_k"] == 1) | ((c["cluster_m"] == 1) & (c["cluster_n"] == 1) & (c["split_k"] == 1)),
         lambda c: f"cluster_k {c.first('cluster_k')} with cluster {c.first('cluster_m')}x{c.first('cluster_n')} and "
                   f"split_k {c.first('split_k')}"),
    Rule("cluster.k_schedule", "a cluster along K gives each block one tile, so consumers cannot take turns",
         f"{_KERNEL}/cluster_k.cuh", ("cluster_k", "schedule"),
         lambda c: (c["cluster_k"] == 1) | (c["schedule"] != knobs.SCHEDULE_PINGPONG),
         lambda c: f"cluster_k {c.first('cluster_k')}; use schedule=cooperative"),
    Rule("cluster.k_epilogue", "a cluster along K writes its shares of C by direct stores", f"{_KERNEL}/cluster_k.cuh",
         ("cluster_k", "epilogue"), lambda c: (c["cluster_k"] == 1) | (c["epilogue"] == knobs.EPILOGUE_DIRECT),
         lambda c: f"cluster_k {c.first('cluster_k')}; use epilogue=direct"),
    Rule("cluster.k", "every block of a cluster along K has at least one stage of K", _KERNEL,
         ("cluster_k", "k_iterations"),
         lambda c: c["cluster_k"] <= c["k_iterations"],
         lambda c: f"cluster_k {c.first('cluster_k')} > {c.first('k_iterations')} stages in K"),
    Rule("multicast.slice_a", "each block of a cluster row loads a slice of A made of whole swizzle patterns",
         _PATTERN, ("tile_m", "tile_k", "cluster_n", "swap_ab"),
         lambda c: whole_patterns(_lines_a(c), c["cluster_n"]),
         lambda c: f"{int(_lines_a(c)[0])} lines over {c.first('cluster_n')} blocks"),
    Rule("multicast.slice_b", "each block of a cluster column loads a slice of B made of whole swizzle patterns",
         _PATTERN, ("tile_n", "tile_k", "cluster_m", "swap_ab"),
         lambda c: whole_patterns(_lines_b(c), c["cluster_m"]),
         lambda c: f"{int(_lines_b(c)[0])} lines over {c.first('cluster_m')} blocks"),
    Rule("tma.box", f"a TMA box has at most {tma.MAX_BOX_EXTENT} lines", f"{tma.SOURCE}: boxDim",
         ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "swap_ab"),
         lambda c: (_lines_a(c) // c["cluster_n"] <= tma.MAX_BOX_EXTENT)
         & (_lines_b(c) // c["cluster_m"] <= tma.MAX_BOX_EXTENT),
         lambda c: f"boxes of {int(_lines_a(c)[0]) // c.first('cluster_n')} and "
                   f"{int(_lines_b(c)[0]) // c.first('cluster_m')} lines"),
    Rule("epilogue.bytes", "an 8-bit C is written by direct stores", _KERNEL, ("epilogue",),
         lambda c: output_bytes(c.problem) > 1 or c["epilogue"] == knobs.EPILOGUE_DIRECT,
         lambda c: f"C is {c.problem.dtype_c}; use epilogue=direct"),
    Rule("epilogue.swapped", "a swapped tile is staged by stmatrix, which moves only 16-bit elements",
         "PTX ISA 9.0, stmatrix: .b16", ("epilogue", "swap_ab"),
         lambda c: output_bytes(c.problem) == 2 or (c["epilogue"] == knobs.EPILOGUE_DIRECT) | (c["swap_ab"] == 0),
         lambda c: f"C is {c.problem.dtype_c}; use epilogue=direct"),
    Rule("epilogue.half", f"half a tile is a multiple of {wgmma.N_STEP} columns where C is read: others overlap, and "
         "the second would read what the first wrote", _KERNEL, ("epilogue", "tile_n"),
         lambda c: (c["epilogue"] != knobs.EPILOGUE_TMA_HALF) | (c["tile_n"] % (2 * wgmma.N_STEP) == 0)
                   | np.bool_("beta" not in c.problem.epilogue_parts),
         lambda c: f"tile_n {c.first('tile_n')}; use epilogue=tma"),
    Rule("tma.store_stride", "a TMA epilogue needs rows of C that start at multiples of 16 bytes",
         f"{tma.SOURCE}: globalStrides", ("epilogue",),
         lambda c: _whole_rows(c) or c["epilogue"] == knobs.EPILOGUE_DIRECT,
         lambda c: f"n = {c.problem.n} gives rows of {_c_pitch_bytes(c):,} B; use epilogue=direct"),
    Rule("smem.capacity", "stages, staged C and barriers fit the opt-in shared memory of a block",
         "CUDA C++ Programming Guide, compute capabilities: 227 KiB on 9.0", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_per_block_bytes, _smem_numbers),
    slices_rule(_KERNEL),
    workspace_rule(_KERNEL),
    Rule("split.registers", "the registers for summing slices fit beside those of a slice's own sums",
         "NVRTC's spill report",
         ("split_k", "cluster_k", "held_registers", "consumer_registers", "entry_registers", "schedule", "swap_ab"),
         lambda c: (slices(c) == 1) | (c["held_registers"] + _share_registers(c) <= _register_limit(c)),
         lambda c: f"{c.first('held_registers')} + {int(_share_registers(c)[0])} registers > "
                   f"{int(_register_limit(c)[0])}; tile {c.first('tile_m')}x{c.first('tile_n')} is too large for "
                   f"split_k {c.first('split_k')}, cluster_k {c.first('cluster_k')}"),
    Rule("stream_k.alone", "stream-K excludes split-K and clusters along K", f"{_KERNEL}/stream_k.cuh",
         ("stream_k", "split_k", "cluster_k"), lambda c: (c["stream_k"] == 0) | (slices(c) == 1),
         lambda c: f"stream_k 1 with split_k {c.first('split_k')} and cluster_k {c.first('cluster_k')}"),
    Rule("stream_k.schedule", "stream-K needs ping-pong: one consumer writes a shared tile while the other multiplies",
         f"{_KERNEL}/stream_k.cuh", ("stream_k", "schedule"),
         lambda c: (c["stream_k"] == 0) | (c["schedule"] == knobs.SCHEDULE_PINGPONG),
         lambda c: "stream_k 1; use schedule=pingpong"),
    Rule("stream_k.epilogue", "stream-K writes shared tiles by direct stores", f"{_KERNEL}/stream_k.cuh",
         ("stream_k", "epilogue"), lambda c: (c["stream_k"] == 0) | (c["epilogue"] == knobs.EPILOGUE_DIRECT),
         lambda c: "stream_k 1; use epilogue=direct"),
    Rule("stream_k.registers", "the registers for summing a shared tile fit beside those of a consumer's own sums",
         "NVRTC's spill report",
         ("stream_k", "held_registers", "consumer_registers", "entry_registers", "schedule", "producer_registers",
          "tile_n", "swap_ab", "instructions_n", "tile_m", "team"),
         lambda c: (c["stream_k"] == 0) | (c["held_registers"] <= _shared_limit(c)),
         lambda c: f"{c.first('held_registers')} registers > {int(_shared_limit(c)[0])}; a tile of "
                   f"{c.first('tile_m')}x{c.first('tile_n')} is too large for stream_k 1"),
    Rule("stream_k.loop",
         "a shared tile spans one instruction of N >= 64 and at most 128 rows, in stages of 128 bytes of K or more",
         "ptxas C7517: with shorter loops or more instructions, it moves accumulators that wgmma is using",
         ("stream_k", "tile_m", "tile_k", "tile_n", "instructions_n"),
         lambda c: (c["stream_k"] == 0) | _keeps_sums(c),
         lambda c: f"tile {c.first('tile_m')}x{c.first('tile_n')}, {c.first('instructions_n')} instructions wide, in "
                   f"stages of {int(stage_k_bytes(c)[0])} B of K"),
    Rule("split.epilogue", "split-K writes its shares of C by direct stores", f"{_KERNEL}/split_k.cuh",
         ("split_k", "epilogue"), lambda c: (c["split_k"] == 1) | (c["epilogue"] == knobs.EPILOGUE_DIRECT),
         lambda c: f"split_k {c.first('split_k')}; use epilogue=direct"),
    grid_rule(_KERNEL, "tiles_m", "tiles_n", "split_k", "cluster_k"),
    edge_rule(_KERNEL),
    packed_rows_rule(needs_packing, pitch_bytes),
    sums_range_rule(),
)  # fmt: skip
