"""Legal rules of `gemv`: limits of the problem, of loads, registers and shared memory."""

from __future__ import annotations

from typing import Final

from space.columns import Columns
from space.families.common import grid_rule, host_scales_rule, input_bytes, sums_range_rule, target_rule, workspace_rule
from space.families.gemv.derive import beside_registers, row_bytes, transposed_a
from space.families.gemv.knobs import A_SMEM, MAX_ROWS
from space.rules import Rule

#: Loads along K are counted in 32 bits, and a few steps past the last one must not overflow.
MAX_PIECES: Final = 2**30

TARGETS: Final = frozenset({"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_120a", "sm_121a"})

_KERNEL = "workers/kernels/gemv"
_PTX = "PTX ISA 9.0, ld.global.nc"
_LIMITS = "CUDA C++ Programming Guide, compute capabilities"


def _others(c: Columns) -> str:
    """The family to use where this one refuses."""
    return "sm90_wgmma" if "wgmma" in c.arch.features and not _mma_sync_sums(c) else "mma_sync"


def _mma_sync_sums(c: Columns) -> bool:
    """Whether sums are f16 and `mma_sync` takes them: fp8 it leaves to wgmma where there is one."""
    fp8 = "mma_fp8" in c.arch.features and "wgmma" not in c.arch.features
    return c.problem.dtype_acc == "fp16" and (c.problem.dtype_a == "fp16" or fp8)


LEGAL: Final[tuple[Rule, ...]] = (
    target_rule(_KERNEL, TARGETS),
    Rule("arch.fp8", "fp8 is converted by instructions that sm_89 introduced", "PTX ISA 9.0, cvt: .e4m3x2 and .e5m2x2",
         (), lambda c: "mma_fp8" in c.arch.features
                       or not (c.problem.dtype_a + c.problem.dtype_c).count("fp8"),
         lambda c: f"{c.problem.dtype_a} with a {c.problem.dtype_c} C on {c.arch.name}; use bf16 or fp16"),
    Rule("pdl.griddepcontrol", "a dependent launch waits for the previous kernel by griddepcontrol, which sm_90 has",
         "PTX ISA 9.0, griddepcontrol", ("pdl",), lambda c: (c["pdl"] == 0) | (c["griddepcontrol"] == 1),
         lambda c: f"{c.arch.name} has no griddepcontrol; use pdl=0"),
    Rule("problem.rows", f"A has at most {MAX_ROWS} rows",
         f"{_KERNEL}: memory delivers about 10 elements of B per clock and multiprocessor; CUDA cores convert each "
         "once and multiply it once per row, so that with more rows they, not memory, set the pace", (),
         lambda c: c.problem.m <= MAX_ROWS, lambda c: f"m = {c.problem.m}; use {_others(c)}"),
    Rule("problem.layout", "B is contiguous along K, as in layouts nt and tt",
         f"{_KERNEL}: neighbouring lanes read neighbours along K; in B[K,N] these lie N elements apart", (),
         lambda c: c.problem.layout[1] == "t", lambda c: f"layout {c.problem.layout}; use {_others(c)}"),
    Rule("problem.sums", "sums are f32 or s32", f"{_KERNEL}: CUDA cores add in f32", (),
         lambda c: c.problem.dtype_acc != "fp16",
         lambda c: f"f16 sums; use {'mma_sync, or ' * _mma_sync_sums(c)}f32 sums"),
    host_scales_rule(_KERNEL),
    Rule("rows.match", "the kernel is compiled for the rows of A", _KERNEL, ("rows",),
         lambda c: c["rows"] == c.problem.m, lambda c: f"rows {c.first('rows')}, m = {c.problem.m}"),
    Rule("load.element", "a load holds whole elements", _KERNEL, ("load_bytes",),
         lambda c: c["load_bytes"] >= input_bytes(c.problem),
         lambda c: f"load_bytes {c.first('load_bytes')} < {input_bytes(c.problem)} B of {c.problem.dtype_a}"),
    Rule("load.alignment", "rows of B start at multiples of a load",
         f"{_PTX}: an address is a multiple of the access size",
         ("load_bytes",), lambda c: row_bytes(c.problem) % c["load_bytes"] == 0,
         lambda c: f"rows of {row_bytes(c.problem):,} B; load_bytes {c.first('load_bytes')}"),
    Rule("load.pieces", "the number of loads per row fits in 32 bits", _KERNEL, ("pieces",),
         lambda c: c["pieces"] <= MAX_PIECES, lambda c: f"{c.first('pieces'):,} loads > {MAX_PIECES:,}"),
    Rule("team.warps", "the warps of a block form whole teams", _KERNEL, ("warps", "split_warps"),
         lambda c: c["warps"] % c["split_warps"] == 0,
         lambda c: f"{c.first('warps')} warps, {c.first('split_warps')} per team"),
    Rule("block.resident", "the requested blocks, and their threads, fit on a multiprocessor", _LIMITS,
         ("threads", "blocks_per_sm"),
         lambda c: (c["threads"] * c["blocks_per_sm"] <= c.arch.threads_per_sm)
                   & (c["blocks_per_sm"] <= c.arch.blocks_per_sm),
         lambda c: f"{c.first('blocks_per_sm')} blocks of {c.first('threads')} threads; {c.arch.name} holds "
                   f"{c.arch.blocks_per_sm} blocks and {c.arch.threads_per_sm:,} threads"),
    Rule("registers.held", "sums and loads in flight fit the registers of a thread", "NVRTC's spill report",
         ("held_registers", "entry_registers"),
         lambda c: c["held_registers"] + beside_registers(c) <= c["entry_registers"],
         lambda c: f"{c.first('held_registers')} + {beside_registers(c)} > {c.first('entry_registers')} registers"),
    Rule("a.transposed", "an A that is not contiguous along K is staged in shared memory",
         f"{_KERNEL}: the path through L1 reads contiguous pieces of rows", ("a_path",),
         lambda c: (c["a_path"] == A_SMEM) | (not transposed_a(c.problem)),
         lambda c: f"layout {c.problem.layout} with m = {c.problem.m}; use a_path=smem"),
    Rule("smem.capacity", "a slice of A and the sums of a team fit the opt-in shared memory of a block",
         f"{_LIMITS}: 227 KiB on 9.0, 163 KiB on 8.0 and 8.7, 99 KiB on 8.6, 8.9 and 12.x", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_per_block_bytes,
         lambda c: f"{c.first('rows')}·{c.first('staged_pitch_bytes'):,} B of A + {c.first('reduction_bytes'):,} B = "
                   f"{c.first('shared_memory_bytes'):,} B > {c.arch.smem_per_block_bytes:,} B on {c.arch.name}"),
    Rule("split.k", "every slice of K has at least one load", _KERNEL, ("split_k", "pieces"),
         lambda c: c["split_k"] <= c["pieces"],
         lambda c: f"split_k {c.first('split_k')} > {c.first('pieces')} loads in K"),
    workspace_rule(_KERNEL),
    grid_rule(_KERNEL, "tiles_n", "split_k"),
    sums_range_rule(),
)  # fmt: skip
