"""Legal rules of `mma_sync`: limits of the instruction, the pipeline, registers and shared memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from space.arch import VECTOR_BYTES, WARP_THREADS, WORD_BYTES
from space.columns import BoolColumn, Columns, IntColumn, among
from space.families.common import (
    edge_rule,
    grid_rule,
    host_scales_rule,
    packed_rows_rule,
    rows_of_chunks,
    slices_rule,
    sums_range_rule,
    target_rule,
    workspace_rule,
)
from space.families.mma_sync.derive import INSTRUCTION_K_BYTES, INSTRUCTION_M, INSTRUCTION_N, stage_k_bytes
from space.families.mma_sync.knobs import COPIES_CP_ASYNC, COPIES_TMA
from space.families.mma_sync.operands import (
    block_scaled,
    copy_bytes,
    instruction,
    loaded_by_words,
    narrowest_copy,
    needs_packing,
    pitch_bytes,
    tile_rows,
)
from space.instructions import mma_sync, tma
from space.rules import Rule

#: Bytes of K that a stage may hold: at least two instructions, since the last but one of a stage waits for the next
#: stage; more than 256 is better spent on another stage.
STAGE_K_BYTES: Final = (64, 128, 256)
#: cp_async counts the bytes that are left of a line in 32 bits.
MAX_LINE_BYTES: Final = 2**31 - 1
#: Bytes after which every swizzle of TMA repeats.
SWIZZLE_BYTES: Final = 1024
#: Elements of K between two promotions of fp8 sums to f32.
PROMOTION_K: Final = 128
#: Groups of 16 bytes that one thread copies for a stage, and where some pass through registers in pieces of 4 bytes:
#: the addresses of more do not stay in registers.
MOST_GROUPS, MOST_PIECEWISE = 24, 8
#: Loads that one thread holds in registers at a step, and registers beside them, for their addresses.
MOST_LOADS, PIECE_REGISTERS = 48, 8
#: Registers of the main loop beside what a thread holds: copies, addresses, the walk over tiles. With fewer, ptxas
#: spills.
BESIDE_REGISTERS: Final = 48
#: And more where a thread copies more than so many groups of a stage, because it holds the addresses of all at once.
GROUP_REGISTERS, MANY_GROUPS = 16, 20
#: And more where both operands are loaded by words and a thread copies more than so many groups at one step: ptxas
#: spilled 16 to 128 bytes for a lone warp of 64 by 64 with two steps a stage.
WORD_REGISTERS, MOST_AT_ONCE = 8, 12
#: Registers of a consumer's main loop beside what it holds, where a producer copies: the walk and the fragments' rows.
CONSUMER_REGISTERS: Final = 28
#: And more where fp8 sums are promoted, and where a warp's tile is so thin that its fragments take more than so many.
MORE_REGISTERS, MOST_FRAGMENT_REGISTERS = 8, 48
#: And more with f16 sums, which leave room for larger tiles, with more copies and addresses.
HALF_REGISTERS: Final = 24
#: Registers of the epilogue beside the sums, and for each of them: for a plain epilogue, for one with a source, a bias
#: or an exponential, and for one with an error function.
PLAIN_FINISH, READING_FINISH, ERF_FINISH = (48, 0.0), (64, 0.25), (64, 0.5)
#: Columns of a warp's tile that need one more if TMA copies, because its main loop leaves room for tiles of 32 by 128.
READ_COLUMNS: Final = 4
#: Up to this many elements for each register of a thread, a warp's tile may have any number of columns beside a source
#: without a bias, or with one before gelu. Beyond, on GeForce Blackwell, ptxas spills for 32 by 80, 32 by 96 and 64 by
#: 48 in 255 registers, 16 by 80 in 168 and 32 by 40 in 128, but not for 32 by 128 and 64 by 64.
SOURCE_ELEMENTS: Final = 7
#: Columns that a warp finishes at once where each thread stores 16 bytes of a row of C. It does so too where its tile
#: has fewer left.
CHUNK_COLUMNS: Final = 32
#: Most elements that a warp finishes, in whole chunks, with a source before gelu on Ampere and Ada: without a bias,
#: with one, and with one in stream-K. ptxas spilled from 6,144, 4,096 and 3,072 on.
ERF_ELEMENTS, BIASED_ERF_ELEMENTS, STREAMED_ERF_ELEMENTS = 4608, 3072, 2560
#: Registers that add up the shares of split-K, once the sums of the slice itself are stored.
SPLIT_REGISTERS: Final = 96
#: Registers of the main loop and of the epilogue that stream-K adds for the walk over a block's share.
STREAM_REGISTERS: Final = 15
#: With fewer threads each copies more groups of a stage, whose addresses need more registers.
STREAM_THREADS: Final = 128
#: Stages of shared tiles are counted in 32 bits.
MAX_SHARED_STAGES: Final = 2**31 - 1

TARGETS: Final = frozenset({"sm_80", "sm_86", "sm_87", "sm_89", "sm_120a", "sm_121a"})
#: Targets of another family that is faster.
FALLBACKS: Final = frozenset({"sm_90a"})

_KERNEL = "workers/kernels/mma_sync"
_LIMITS = "CUDA C++ Programming Guide, compute capabilities"
_SPILLS = "NVRTC's spill report"


def loop_registers(c: Columns) -> IntColumn:
    """Registers that the main loop needs."""
    promotion = MORE_REGISTERS if c.problem.numerics == "promoted" else 0
    thin = MORE_REGISTERS * (c["fragment_registers"] > MOST_FRAGMENT_REGISTERS)
    produced = c["copies"] == COPIES_TMA
    groups = GROUP_REGISTERS * ~produced * (c["stage_bytes"] > MANY_GROUPS * VECTOR_BYTES * c["threads"])
    half = HALF_REGISTERS if c.problem.dtype_acc == "fp16" else 0
    beside = np.where(produced, CONSUMER_REGISTERS, BESIDE_REGISTERS) + promotion + half
    beside = beside + WORD_REGISTERS * (len(_by_words(c)) == 2) * (_groups_at_once(c) > MOST_AT_ONCE)
    loads = _loads_at_once(c)
    beside = beside + loads + PIECE_REGISTERS * (loads > 0)
    column: IntColumn = c["held_registers"] + beside + thin + groups + STREAM_REGISTERS * c["stream_k"]
    return column


def _most_groups(c: Columns) -> int:
    return MOST_PIECEWISE if narrowest_copy(c.problem) < WORD_BYTES else MOST_GROUPS


def _groups_at_once(c: Columns) -> IntColumn:
    """Groups that a thread copies at a step."""
    column: IntColumn = c["stage_bytes"] // (VECTOR_BYTES * c["threads"] * copying_steps(c))
    return column


def copying_steps(c: Columns) -> IntColumn:
    """Steps of a stage that copy: all but the last."""
    column: IntColumn = np.maximum(stage_k_bytes(c) // INSTRUCTION_K_BYTES - 1, 1)
    return column


def _loads_at_once(c: Columns) -> IntColumn:
    """Loads that a thread holds at a step of lines that pass through registers: `cp.async` copies 4 bytes or more."""
    loads = 0 * c["tile_m"]
    for operand in "ab":
        if (width := copy_bytes(c.problem, operand)) < WORD_BYTES:
            loads = loads + tile_rows(c, operand) * stage_k_bytes(c) // width
    column: IntColumn = -(-loads // (c["threads"] * copying_steps(c)))
    return column


def finish_registers(c: Columns) -> IntColumn:
    """Registers that the epilogue needs; it takes f16 sums in f32, 16 rows of a warp's tile at a time."""
    parts, sums = c.problem.epilogue_parts, c["accumulator_registers"]
    if c.problem.dtype_acc == "fp16":
        sums = sums + c["warp_n"] * INSTRUCTION_M // WARP_THREADS
    reads = parts & {"beta", "bias", "silu"}
    beside, each = ERF_FINISH if "gelu" in parts else READING_FINISH if reads else PLAIN_FINISH
    direct = beside + (sums * (1 + each)).astype(np.int64)
    if reads:
        direct = direct + np.where(c["copies"] == COPIES_TMA, c["warp_n"] // READ_COLUMNS, 0)
    either = np.maximum(direct + STREAM_REGISTERS, SPLIT_REGISTERS + STREAM_REGISTERS)
    return np.where(c["split_k"] > 1, SPLIT_REGISTERS, np.where(c["stream_k"] == 1, either, direct))


def _by_chunks(c: Columns) -> BoolColumn:
    """Whether warps store their own sums by chunks of rows of C."""
    column: BoolColumn = (c["swap_ab"] == 0) & (c["split_k"] == 1) & rows_of_chunks(c.problem)
    return column


def _reads_source(c: Columns) -> BoolColumn | bool:
    parts = c.problem.epilogue_parts
    if "mma_fp4" not in c.arch.features or "beta" not in parts or ("bias" in parts and "gelu" not in parts):
        return True
    small = c["warp_m"] * c["warp_n"] <= SOURCE_ELEMENTS * c["consumer_registers"]
    column: BoolColumn = small | ((c["warp_n"] & (c["warp_n"] - 1)) == 0) | (c["split_k"] > 1)
    return column | ~_by_chunks(c) if "bias" in parts else column


def _chunked_elements(c: Columns) -> IntColumn:
    """Elements of a warp's tile, its columns rounded up to whole chunks."""
    column: IntColumn = c["warp_m"] * -(-c["warp_n"] // CHUNK_COLUMNS) * CHUNK_COLUMNS
    return column


def _most_chunked_elements(c: Columns) -> IntColumn:
    biased = np.where(c["stream_k"] == 1, STREAMED_ERF_ELEMENTS, BIASED_ERF_ELEMENTS)
    return biased if "bias" in c.problem.epilogue_parts else np.full_like(biased, ERF_ELEMENTS)


def _finishes_chunks(c: Columns) -> BoolColumn | bool:
    if "tma" in c.arch.features or not c.problem.epilogue_parts >= {"beta", "gelu"}:
        return True
    column: BoolColumn = ~_by_chunks(c) | (_chunked_elements(c) <= _most_chunked_elements(c))
    return column


def _by_words(c: Columns) -> list[str]:
    """The problem's operands whose fragments are loaded word by word."""
    return [operand.upper() for operand in "ab" if loaded_by_words(c.problem, operand)]


def _longest_line(c: Columns) -> int:
    """Bytes of the longest line of both operands."""
    return max(pitch_bytes(c.problem, operand) for operand in "ab")


def _dtypes_of(arch: str) -> str:
    """Dtypes of A that an arch multiplies by `mma.sync`, in words."""
    words = dict.fromkeys(row.dtype_a for row in mma_sync.MMA_SYNC if arch in row.archs and not row.kind)
    return ", ".join(words)


def _loop_numbers(c: Columns) -> str:
    held, need = c.first("held_registers"), int(loop_registers(c)[0])
    sums, fragments = c.first("accumulator_registers"), c.first("fragment_registers")
    sets = 2 if c.problem.numerics == "promoted" else 1
    addresses = held - sets * sums - 2 * fragments
    parts = [f"{'2·' * (sets > 1)}{sums} sums", f"2·{fragments} of fragments"]
    parts += [f"{addresses} addresses"] * (addresses > 0)
    return f"{' + '.join(parts)} = {held} held, + {need - held} beside = {need} > {_entry_numbers(c)}"


def _entry_numbers(c: Columns) -> str:
    return (
        f"{c.first('consumer_registers')} registers of a thread in {c.first('blocks_per_sm')} blocks of "
        f"{c.first('threads')}"
    )


def _smem_numbers(c: Columns) -> str:
    stages, each, used = c.first("stages"), c.first("stage_bytes"), c.first("shared_memory_bytes")
    return (
        f"{stages}·{each:,} B of stages + {used - stages * each} B = {used:,} B > {c.arch.smem_per_block_bytes:,} B on "
        f"{c.arch.name}"
    )


def _source_numbers(c: Columns) -> str:
    rows, columns, registers = c.first("warp_m"), c.first("warp_n"), c.first("consumer_registers")
    most = SOURCE_ELEMENTS * registers
    return f"a warp of {rows} by {columns} has {rows * columns:,} elements > {SOURCE_ELEMENTS}·{registers} = {most:,}"


def _chunk_numbers(c: Columns) -> str:
    rows, elements = c.first("warp_m"), int(_chunked_elements(c)[0])
    return (
        f"a warp of {rows} by {c.first('warp_n')} finishes {rows}·{elements // rows} = {elements:,} elements > "
        f"{int(_most_chunked_elements(c)[0]):,}"
    )


LEGAL: Final[tuple[Rule, ...]] = (
    target_rule(_KERNEL, TARGETS | FALLBACKS),
    Rule("arch.mma_sync", "the target's tensor cores multiply the dtypes of A and B, and add in that of the sums",
         mma_sync.SOURCE, (),
         lambda c: instruction(c.problem, c.arch.name) is not None,
         lambda c: f"{c.arch.name} has no mma.sync of {c.problem.dtype_a} x {c.problem.dtype_b}"
                   f"{' with fp16 sums' * (c.problem.dtype_acc == 'fp16')}: it has {_dtypes_of(c.arch.name)}"),
    Rule("arch.fp8_converted", "the target multiplies fp8 by mma.sync itself, without converting it to fp16 first",
         f"{_SPILLS}; sizes of the same kernel for sm_89 and sm_90a", (),
         lambda c: not c.problem.dtype_a.startswith("fp8") or "wgmma" not in c.arch.features,
         lambda c: f"{c.problem.dtype_a} on {c.arch.name}, whose wgmma multiplies fp8"),
    Rule("arch.fp8_output", "an fp8 C is converted by an instruction that sm_89 introduced",
         "PTX ISA 9.0, cvt: .e4m3x2 and .e5m2x2", (),
         lambda c: not c.problem.dtype_c.startswith("fp8") or "mma_fp8" in c.arch.features,
         lambda c: f"C is {c.problem.dtype_c} on {c.arch.name}; use bf16, fp16 or f32"),
    host_scales_rule(_KERNEL),
    Rule("mma.block_scale", "block-scaled products are fp8 with f32 sums, on targets that have the instruction",
         f"{mma_sync.SOURCE}: .kind::mxf8f6f4", ("unit_scales",),
         lambda c: (c["unit_scales"] == 0) | (block_scaled(c.problem, c.arch.name) is not None),
         lambda c: f"unit_scales 1 of {c.problem.dtype_a} with {c.problem.dtype_acc} sums on {c.arch.name}"),
    Rule("copies.tma", "the target has TMA", f"{tma.SOURCE}; PTX ISA 9.0, cp.async.bulk.tensor: sm_90 and later",
         ("copies",), lambda c: (c["copies"] == COPIES_CP_ASYNC) | np.bool_("tma" in c.arch.features),
         lambda c: f"{c.arch.name} has no TMA: use cp_async"),
    Rule("copies.pitch", f"TMA copies rows that start at multiples of {tma.STRIDE_STEP_BYTES} bytes", tma.SOURCE,
         ("copies",),
         lambda c: (c["copies"] == COPIES_CP_ASYNC) | np.bool_(narrowest_copy(c.problem) >= tma.STRIDE_STEP_BYTES),
         lambda c: f"rows start at multiples of {narrowest_copy(c.problem)} B: use cp_async"),
    Rule("copies.words", "TMA copies operands of 32 bits only where they lie along K",
         f"{_KERNEL}/shape.cuh: TMA has no swizzle by which lanes load transposed words without bank conflicts",
         ("copies",),
         lambda c: (c["copies"] == COPIES_CP_ASYNC) | np.bool_(not _by_words(c)),
         lambda c: f"{c.problem.layout} with {' and '.join(_by_words(c))} of {c.problem.dtype_a} not along K: use "
                   "cp_async"),
    Rule("copies.line", f"cp_async copies lines of at most {MAX_LINE_BYTES:,} bytes", f"{_KERNEL}/copy.cuh",
         ("copies",), lambda c: (c["copies"] == COPIES_TMA) | np.bool_(_longest_line(c) <= MAX_LINE_BYTES),
         lambda c: f"lines of {_longest_line(c):,} B: multiply parts of them, or use another layout"),
    Rule("copies.swizzle", f"a stage of B is a multiple of {SWIZZLE_BYTES:,} bytes where TMA copies it",
         "TMA applies the swizzle to addresses; that of 128 bytes repeats every 1,024", ("copies", "tile_n", "tile_k"),
         lambda c: (c["copies"] == COPIES_CP_ASYNC) | (c["tile_n"] * stage_k_bytes(c) % SWIZZLE_BYTES == 0),
         lambda c: f"tile_n {c.first('tile_n')} by {int(stage_k_bytes(c)[0])} B of K"),
    Rule("copies.stream", "stream-K copies with cp_async",
         f"{_SPILLS}: 32 to 128 B of values that the walk over a share keeps across setmaxnreg", ("copies", "stream_k"),
         lambda c: (c["copies"] == COPIES_CP_ASYNC) | (c["stream_k"] == 0),
         lambda c: "stream_k 1: use cp_async, or stream_k 0"),
    Rule("copies.slices", f"warps of {INSTRUCTION_M} rows, stacked along M beside a producer that gives up registers, "
         "take all of K", f"{_SPILLS}: 4 to 36 B across setmaxnreg for tiles of 64 by 8, 16 and 32",
         ("producer_registers", "split_k", "warp_m", "warps_n"),
         lambda c: (c["producer_registers"] == 0) | (c["split_k"] == 1) | (c["warp_m"] > INSTRUCTION_M)
                   | (c["warps_n"] > 1),
         lambda c: f"split_k {c.first('split_k')}: use cp_async, or split_k 1"),
    Rule("mma.m", f"a warp takes a multiple of the instruction's {INSTRUCTION_M} rows of a tile", mma_sync.SOURCE,
         ("tile_m", "warps_m"), lambda c: c["tile_m"] % (INSTRUCTION_M * c["warps_m"]) == 0,
         lambda c: f"tile_m {c.first('tile_m')} is not a multiple of {INSTRUCTION_M}·{c.first('warps_m')}"),
    Rule("mma.n", f"a warp takes a multiple of the instruction's {INSTRUCTION_N} columns of a tile", mma_sync.SOURCE,
         ("tile_n", "warps_n"), lambda c: c["tile_n"] % (INSTRUCTION_N * c["warps_n"]) == 0,
         lambda c: f"tile_n {c.first('tile_n')} is not a multiple of {INSTRUCTION_N}·{c.first('warps_n')}"),
    Rule("mma.k", "a stage holds 64, 128 or 256 bytes of K",
         f"{_KERNEL}/kernel.cuh: the last step but one of a stage waits for the next stage", ("tile_k",),
         lambda c: among(stage_k_bytes(c), STAGE_K_BYTES),
         lambda c: f"tile_k {c.first('tile_k')} is {int(stage_k_bytes(c)[0])} B of {c.problem.dtype_a}"),
    Rule("mma.promotion", f"stages end where sums are promoted, every {PROMOTION_K} elements of K", _KERNEL,
         ("tile_k",), lambda c: c.problem.numerics != "promoted" or c["tile_k"] <= PROMOTION_K,
         lambda c: f"tile_k {c.first('tile_k')} > {PROMOTION_K}"),
    Rule("block.threads", "a multiprocessor holds all threads of its blocks, and a block at most 1,024", _LIMITS,
         ("threads", "blocks_per_sm"),
         lambda c: (c["threads"] <= c.arch.threads_per_block)
                   & (c["threads"] * c["blocks_per_sm"] <= c.arch.threads_per_sm)
                   & (c["blocks_per_sm"] <= c.arch.blocks_per_sm),
         lambda c: f"{c.first('blocks_per_sm')} blocks of {c.first('threads')} threads; {c.arch.name} holds "
                   f"{c.arch.blocks_per_sm} blocks and {c.arch.threads_per_sm:,} threads"),
    Rule("copy.groups", f"a thread copies at most {MOST_GROUPS} groups of 16 bytes for a stage, {MOST_PIECEWISE} where "
                        f"lines are aligned to less than {WORD_BYTES} bytes", _SPILLS,
         ("stage_bytes", "threads", "copies"),
         lambda c: (c["copies"] == COPIES_TMA) | (c["stage_bytes"] <= _most_groups(c) * VECTOR_BYTES * c["threads"]),
         lambda c: f"{c.first('stage_bytes'):,} B of a stage over {c.first('threads')} threads are "
                   f"{c.first('stage_bytes') // (VECTOR_BYTES * c.first('threads'))} groups each"),
    Rule("copy.loads", f"a thread loads at most {MOST_LOADS} pieces at a step where lines are aligned to less than "
                       f"{WORD_BYTES} bytes", _SPILLS, ("tile_m", "tile_n", "tile_k", "swap_ab", "threads"),
         lambda c: _loads_at_once(c) <= MOST_LOADS,
         lambda c: f"{c.first('threads')} threads load {int(_loads_at_once(c)[0])} pieces each at a step"),
    Rule("registers.held", "sums and two sets of fragments fit the registers of a thread without spilling",
         f"65,536 registers per block, 255 per thread; {_SPILLS}",
         ("held_registers", "fragment_registers", "consumer_registers", "stage_bytes", "threads", "stream_k",
          "copies", "tile_k", "tile_m", "tile_n", "swap_ab"),
         lambda c: loop_registers(c) <= c["consumer_registers"], _loop_numbers),
    Rule("registers.finish", "sums and what the epilogue reads fit the registers of a thread without spilling", _SPILLS,
         ("accumulator_registers", "warp_n", "consumer_registers", "split_k", "stream_k", "copies"),
         lambda c: finish_registers(c) <= c["consumer_registers"],
         lambda c: f"{c.first('accumulator_registers')} sums need {int(finish_registers(c)[0])} > {_entry_numbers(c)}"),
    Rule("registers.source", "on GeForce Blackwell, the columns of a warp that adds a source but no bias, or both "
         "before gelu and stores chunks of rows of C, are a power of 2 if its tile sums all of K and has more than "
         f"{SOURCE_ELEMENTS} elements for each register of a thread",
         f"{_SPILLS}: 16 to 328 B, some with registers to spare, with cp_async and tma; none on sm_90a",
         ("warp_m", "warp_n", "consumer_registers", "split_k", "swap_ab"), _reads_source, _source_numbers),
    Rule("registers.chunks", "on Ampere and Ada, a warp that adds a source before gelu and stores chunks of rows of C "
         f"finishes at most {ERF_ELEMENTS:,} elements, {BIASED_ERF_ELEMENTS:,} with a bias, and "
         f"{STREAMED_ERF_ELEMENTS:,} with a bias in stream-K, its columns rounded up to a multiple of {CHUNK_COLUMNS}",
         f"{_SPILLS}: up to 576 B for most warps of more, as 64 by 48 and 128 by 8 with a bias, 0 for all of fewer; 0 "
         "on sm_90a, for slices of K, and where C is transposed or leaves by pairs",
         ("warp_m", "warp_n", "swap_ab", "split_k", "stream_k"), _finishes_chunks, _chunk_numbers),
    Rule("smem.capacity", "stages fit the opt-in shared memory of a block",
         f"{_LIMITS}: 163 KiB on 8.0 and 8.7, 99 KiB on 8.6, 8.9 and 12.x", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_per_block_bytes, _smem_numbers),
    Rule("smem.resident", "the shared memory of a multiprocessor holds all its blocks",
         f"{_LIMITS}; the driver takes 1 KiB for each block", ("shared_memory_bytes", "blocks_per_sm"),
         lambda c: c["blocks_per_sm"] * (c["shared_memory_bytes"] + c.arch.smem_reserved_bytes)
                   <= c.arch.smem_per_sm_bytes,
         lambda c: f"{c.first('blocks_per_sm')}·({c.first('shared_memory_bytes'):,} + "
                   f"{c.arch.smem_reserved_bytes:,}) B > {c.arch.smem_per_sm_bytes:,} B on {c.arch.name}"),
    Rule("stream.alone", "stream-K cuts K itself and walks over tiles itself", f"{_KERNEL}/walk.cuh",
         ("stream_k", "split_k", "persistent"),
         lambda c: (c["stream_k"] == 0) | ((c["split_k"] == 1) & (c["persistent"] == 0)),
         lambda c: f"split_k {c.first('split_k')}, persistent {c.first('persistent')}; use 1 and 0 beside stream_k"),
    Rule("stream.threads", f"blocks of stream-K have {STREAM_THREADS} threads or more", _SPILLS,
         ("stream_k", "threads"), lambda c: (c["stream_k"] == 0) | (c["threads"] >= STREAM_THREADS),
         lambda c: f"each of {c.first('threads')} threads copies more groups than fit in registers beside the walk"),
    Rule("stream.stages", "the stages of all shared tiles fit in 32 bits", f"{_KERNEL}/walk.cuh",
         ("shared_tiles", "k_iterations"),
         lambda c: c["shared_tiles"] * c["k_iterations"] <= MAX_SHARED_STAGES,
         lambda c: f"{c.first('shared_tiles'):,} tiles of {c.first('k_iterations'):,} stages"),
    slices_rule(_KERNEL),
    workspace_rule(_KERNEL),
    grid_rule(_KERNEL, "tiles_m", "tiles_n", "split_k"),
    edge_rule(_KERNEL),
    packed_rows_rule(needs_packing, pitch_bytes),
    sums_range_rule(),
)  # fmt: skip
