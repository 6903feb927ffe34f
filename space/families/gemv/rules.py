"""What is legal for `gemv`: limits of the problem, of loads, of registers and of shared memory."""

from __future__ import annotations

from typing import Final

from space.arch import MAX_GRID_BLOCKS
from space.families.element_sizes import input_bytes
from space.families.gemv.derive import BESIDE_REGISTERS, row_bytes, transposed_a
from space.families.gemv.knobs import A_SMEM, MOST_ROWS
from space.families.split_k import WORKSPACE_BYTES
from space.rules import Rule

#: Places along K are counted in 32 bits, a few steps beyond the last one too.
MOST_PIECES: Final = 2**30

_KERNEL = "workers/kernels/gemv"
_PTX = "PTX ISA 9.0, ld.global.nc"
_LIMITS = "CUDA C++ Programming Guide, compute capabilities"


LEGAL: Final[tuple[Rule, ...]] = (
    Rule("arch.griddepcontrol", "kernels wait for the ones before them by griddepcontrol, from sm_90 on",
         "PTX ISA 9.0, griddepcontrol", (), lambda c: "clusters" in c.arch.features,
         lambda c: f"{c.arch.name} has no griddepcontrol; build for sm_90a"),
    Rule("problem.rows", f"A has at most {MOST_ROWS} rows",
         f"{_KERNEL}: memory brings some 10 elements of B a clock and multiprocessor, each of which the CUDA cores "
         "convert once and multiply once a row; with more rows they, and not memory, set the pace", (),
         lambda c: c.problem.m <= MOST_ROWS, lambda c: f"m = {c.problem.m}; use sm90_wgmma"),
    Rule("problem.layout", "B lies along K, as in layouts nt and tt",
         f"{_KERNEL}: lanes walk along K side by side; in B[K,N] a column's neighbours lie N elements apart", (),
         lambda c: c.problem.layout[1] == "t", lambda c: f"layout {c.problem.layout}; use sm90_wgmma"),
    Rule("rows.match", "the rows that are compiled in are those of A", _KERNEL, ("rows",),
         lambda c: c["rows"] == c.problem.m, lambda c: f"rows {c.first('rows')}, m = {c.problem.m}"),
    Rule("load.element", "a load brings whole elements", _KERNEL, ("load_bytes",),
         lambda c: c["load_bytes"] >= input_bytes(c.problem),
         lambda c: f"load_bytes {c.first('load_bytes')} < {input_bytes(c.problem)} B of {c.problem.dtype_a}"),
    Rule("load.alignment", "rows of B start at multiples of a load", f"{_PTX}: addresses are multiples of the access",
         ("load_bytes",), lambda c: row_bytes(c.problem) % c["load_bytes"] == 0,
         lambda c: f"rows of {row_bytes(c.problem):,} B; load_bytes {c.first('load_bytes')}"),
    Rule("load.pieces", "loads of a row are counted in 32 bits", _KERNEL, ("pieces",),
         lambda c: c["pieces"] <= MOST_PIECES, lambda c: f"{c.first('pieces'):,} loads > {MOST_PIECES:,}"),
    Rule("team.warps", "every team has as many warps", _KERNEL, ("warps", "split_warps"),
         lambda c: c["warps"] % c["split_warps"] == 0,
         lambda c: f"{c.first('warps')} warps, {c.first('split_warps')} a team"),
    Rule("block.resident", "as many threads and blocks as asked for fit a multiprocessor", _LIMITS,
         ("threads", "blocks_per_sm"),
         lambda c: (c["threads"] * c["blocks_per_sm"] <= c.arch.threads_per_sm)
                   & (c["blocks_per_sm"] <= c.arch.blocks_per_sm),
         lambda c: f"{c.first('blocks_per_sm')} blocks of {c.first('threads')} threads > {c.arch.threads_per_sm:,}"),
    Rule("registers.held", "sums and loads under way fit the registers of a thread", "NVRTC's spill report",
         ("held_registers", "entry_registers"),
         lambda c: c["held_registers"] + BESIDE_REGISTERS <= c["entry_registers"],
         lambda c: f"{c.first('held_registers')} + {BESIDE_REGISTERS} > {c.first('entry_registers')} registers"),
    Rule("a.transposed", "rows of A that don't lie along K are staged",
         f"{_KERNEL}: through L1 pieces of rows are read", ("a_path",),
         lambda c: (c["a_path"] == A_SMEM) | (not transposed_a(c.problem)),
         lambda c: f"layout {c.problem.layout} with m = {c.problem.m}; use a_path=smem"),
    Rule("smem.capacity", "a slice of A and the team's sums fit the opt-in shared memory of a block",
         f"{_LIMITS}: 227 KiB on 9.0", ("shared_memory_bytes",),
         lambda c: c["shared_memory_bytes"] <= c.arch.smem_per_block_bytes,
         lambda c: f"{c.first('rows')}·{c.first('staged_pitch_bytes'):,} B of A + {c.first('reduction_bytes'):,} B = "
                   f"{c.first('shared_memory_bytes'):,} B > {c.arch.smem_per_block_bytes:,} B on {c.arch.name}"),
    Rule("split.k", "every slice of K has a load of its own", _KERNEL, ("split_k", "pieces"),
         lambda c: c["split_k"] <= c["pieces"],
         lambda c: f"split_k {c.first('split_k')} > {c.first('pieces')} loads in K"),
    Rule("split.workspace", "the slices' sums fit the workspace", f"{_KERNEL}: 64 MiB, what the library is given",
         ("workspace_bytes",), lambda c: c["workspace_bytes"] <= WORKSPACE_BYTES,
         lambda c: f"{c.first('workspace_bytes'):,} B > {WORKSPACE_BYTES:,} B"),
    Rule("grid.tiles", "tiles are counted in 32 bits", _KERNEL, ("tiles_n", "split_k"),
         lambda c: c["tiles_n"] * c["split_k"] * c.problem.batch <= MAX_GRID_BLOCKS,
         lambda c: f"{c.first('tiles_n') * c.first('split_k') * c.problem.batch:,} tiles"),
)  # fmt: skip
