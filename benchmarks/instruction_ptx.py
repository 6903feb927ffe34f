"""Source of a kernel that holds one tensor-core instruction, legal or not.

Registers are declared but not initialised: such a kernel is assembled, never launched.
"""

from __future__ import annotations

from typing import Final

from space.arch import Feature
from space.instructions.mma_sync import MmaSync
from space.instructions.tcgen05 import TMEM_LOAD_REPEATS, Tcgen05
from space.instructions.wgmma import A_REGISTERS, Wgmma

_DATA_REGISTER: Final = {"f32": ".f32"}
#: 32-bit registers per thread of `tcgen05.ld` with repeat 1, by shape.
_LOAD_REGISTERS: Final = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4}

#: An instruction that needs the feature and nothing else.
FEATURE_PTX: Final[dict[Feature, str]] = {
    "cp_async": "{ .reg .b32 s; .reg .b64 g; cp.async.cg.shared.global [s], [g], 16; }",
    "mma_fp8": "{ .reg .f32 c<4>; .reg .b32 a<4>, b<2>; mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
               "{c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}; }",
    "mma_fp4": "{ .reg .f32 c<4>; .reg .b32 a<4>, b<2>; "
               "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 "
               "{c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}; }",
    "clusters": "barrier.cluster.arrive; barrier.cluster.wait;",
    "tma": "{ .reg .b32 s, m, x; .reg .b64 t; cp.async.bulk.tensor.2d.shared::cluster.global.tile"
           ".mbarrier::complete_tx::bytes [s], [t, {x, x}], [m]; }",
    "stmatrix": "{ .reg .b32 s, a; stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {a}; }",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 64;",
    "wgmma": "wgmma.fence.sync.aligned;",
    "matrix_b8": "{ .reg .b32 s, a, b; ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {a, b}, [s]; }",
    "tcgen05": "{ .reg .b32 d; mov.b32 d, 0; tcgen05.dealloc.cta_group::1.sync.aligned.b32 d, 32; }",
}  # fmt: skip


def kernel(ptx: str) -> str:
    """CUDA source of a kernel of one block whose body is `ptx`."""
    return f'extern "C" __global__ void __launch_bounds__(128) probe() {{ asm volatile("{ptx}"); }}\n'


def wgmma_ptx(
    row: Wgmma,
    n: int,
    *,
    a_in_registers: bool = False,
    satfinite: bool = False,
    scales: bool | None = None,
    transposes: tuple[int, ...] | None = None,
    registers: int | None = None,
) -> str:
    """One `wgmma.mma_async` with its fence and wait.

    Args:
        row: types and K.
        n: extent along N.
        a_in_registers: A from registers instead of shared memory.
        satfinite: whether the mnemonic has the suffix.
        scales: whether the two scale immediates are written; by default where the row has them.
        transposes: the transpose immediates as written; by default zeros, where the row has them.
        registers: accumulators named; by default as many as the row needs.
    """
    count = row.accumulator_registers(n) if registers is None else registers
    if transposes is None:
        transposes = ((0,) if a_in_registers else (0, 0)) if row.transposes else ()
    immediates = ((1, 1) if (row.negates if scales is None else scales) else ()) + transposes
    d = _names("d", count)
    a = f"{{{_names('r', A_REGISTERS)}}}" if a_in_registers else "a"
    return (
        f"{{ .reg {_DATA_REGISTER.get(row.dtype_acc, '.b32')} {d}; .reg .b64 a, b; .reg .b32 {_names('r', 4)}; "
        f".reg .pred p; setp.ne.b64 p, a, b; wgmma.fence.sync.aligned; "
        f"{row.mnemonic(n, satfinite=satfinite)} {{{d}}}, {a}, b, {', '.join(['p', *map(str, immediates)])}; "
        f"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}"
    )


def mma_sync_ptx(row: MmaSync, *, satfinite: bool = False) -> str:
    """One `mma.sync`."""
    d, a, b = _names("d", row.accumulator_registers), _names("a", row.a_registers), _names("b", row.b_registers)
    scales = ", sa, {0, 0}, sb, {0, 0}" if row.scale_vec else ""
    return (
        f"{{ .reg {_DATA_REGISTER.get(row.dtype_acc, '.b32')} {d}; .reg .b32 {a}, {b}, sa, sb; "
        f"{row.mnemonic(satfinite=satfinite)} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}}{scales}; }}"
    )


def tcgen05_ptx(row: Tcgen05, *, a_in_tmem: bool = False) -> str:
    """One `tcgen05.mma`."""
    scales = ", [s], [s]" if row.scale_vec else ""
    return (
        "{ .reg .b32 d, i, s; .reg .b64 a; .reg .pred p; mov.b32 d, 0; mov.b32 i, 0; mov.b32 s, 0; mov.b64 a, 0; "
        f"setp.ne.b32 p, d, 0; {row.mnemonic} [d], {'[s]' if a_in_tmem else 'a'}, a, i{scales}, p; }}"
    )


def tmem_alloc_ptx(columns: int) -> str:
    """One `tcgen05.alloc`."""
    return f"{{ .reg .b32 d; mov.b32 d, 0; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [d], {columns}; }}"


def tmem_load_ptx(shape: str, repeat: int) -> str:
    """One `tcgen05.ld`; `shape` is a key of `TMEM_LOAD_REPEATS`."""
    assert shape in TMEM_LOAD_REPEATS, shape
    names = _names("q", _LOAD_REGISTERS[shape] * repeat)
    return f"{{ .reg .b32 d, {names}; mov.b32 d, 0; tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {{{names}}}, [d]; }}"


def _names(prefix: str, count: int) -> str:
    return ", ".join(f"{prefix}{place}" for place in range(count))
