"""Sources of the dump kernels: one translation unit each, made for the instruction that it runs.

`mma.sync` and `wgmma` name every register, type and shape: their wrapper is generated here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from space.instructions.operand import PTX_DTYPES
from space.instructions.wgmma import A_REGISTERS, Wgmma
from space.layouts.fragments.mma_sync import Shape, mma_fragment, text
from workers.kernels.flatten import flatten

#: `ptxas` names of dtypes that only `mma.sync` has.
_PTX: Final = PTX_DTYPES | {"int4": "s4", "uint4": "u4", "b1": "b1", "f64": "f64"}
#: Inline-assembly constraint and C type of an accumulator register by dtype; fp16 comes in pairs.
_REGISTER: Final = {"f32": ("f", "float"), "f64": ("d", "double"), "s32": ("r", "u32"), "fp16": ("r", "u32")}
#: Includes of these kernels resolve against this folder, then against `workers/kernels`.
_ROOT: Final = Path(__file__).parent.parent
_DOC: Final = "https://docs.nvidia.com/cuda/parallel-thread-execution/"


def matrix_moves_source() -> str:
    """Entries `ldmatrix_x1` to `stmatrix_x4_trans`."""
    return flatten("layout_dump/matrix_moves.cuh", root=_ROOT)


def tma_source() -> str:
    """Entry `dump_tma`."""
    return flatten("layout_dump/tma.cuh", root=_ROOT)


def mma_sync_source(shape: Shape, dtype: str, accumulator: str, *, a_col: bool = False, b_col: bool = True) -> str:
    """Entry `dump_mma_sync` of one instruction, A and B of the same dtype."""
    return flatten("layout_dump/mma_sync.cuh", {
        "layout_dump/ptx/mma_sync.cuh": _mma_sync(shape, dtype, accumulator, a_col, b_col)}, _ROOT)  # fmt: skip


def wgmma_source(row: Wgmma, n: int, *, a_in_registers: bool = False, trans_a: int = 0, trans_b: int = 0) -> str:
    """Entry `dump_wgmma` of one instruction.

    Args:
        trans_a, trans_b: 1 where that operand lies M- or N-major in shared memory; 16-bit types only.
    """
    return flatten("layout_dump/wgmma.cuh", {
        "layout_dump/ptx/wgmma_mma_async.cuh": _wgmma(row, n, a_in_registers, trans_a, trans_b)}, _ROOT)  # fmt: skip


def _mma_sync(shape: Shape, dtype: str, accumulator: str, a_col: bool, b_col: bool) -> str:
    constraint, kind = _REGISTER[accumulator]
    wide = dtype == "f64"
    registers = [mma_fragment(shape, operand, dtype).registers for operand in "AB"]
    count = mma_fragment(shape, "D", accumulator).registers
    words = [each * (2 if wide else 1) for each in registers]
    types = ".".join(_PTX[word] for word in (accumulator, dtype, dtype, accumulator))
    name = f"mma.sync.aligned.{text(shape)}.{_major(a_col)}.{_major(b_col)}.{types}" + (
        ".and.popc" if dtype == "b1" else ""
    )
    places = _groups(count, *registers, count)
    inputs = [*_inputs("a", registers[0], wide), *_inputs("b", registers[1], wide),
              *[f'"{constraint}"({kind}(0))'] * count]  # fmt: skip
    return f"""\
// {_DOC}#warp-level-matrix-instructions-mma
#pragma once

#include "common/types.cuh"

constexpr int kWordsA = {words[0]}, kWordsB = {words[1]}, kWordsD = {count * (2 if accumulator == "f64" else 1)};

__device__ __forceinline__ void mma_sync(u32 (&words_d)[kWordsD], const u32 (&a)[kWordsA], const u32 (&b)[kWordsB]) {{
    {kind} d[{count}];
    asm volatile(
        "{name} {", ".join(places)};"
        : {", ".join(f'"={constraint}"(d[{i}])' for i in range(count))}
        : {", ".join(inputs)});
{_outputs(accumulator, count)}
}}
"""


def _major(col: bool) -> str:
    return "col" if col else "row"


def _inputs(name: str, count: int, wide: bool) -> list[str]:
    if wide:
        return [f'"d"(__hiloint2double({name}[{2 * i + 1}], {name}[{2 * i}]))' for i in range(count)]
    return [f'"r"({name}[{i}])' for i in range(count)]


def _outputs(accumulator: str, count: int) -> str:
    if accumulator == "f64":
        lines = [f"words_d[{2 * i}] = __double2loint(d[{i}]), words_d[{2 * i + 1}] = __double2hiint(d[{i}]);"
                 for i in range(count)]  # fmt: skip
    elif accumulator == "f32":
        lines = [f"words_d[{i}] = __float_as_uint(d[{i}]);" for i in range(count)]
    else:
        lines = [f"words_d[{i}] = d[{i}];" for i in range(count)]
    return "\n".join(f"    {line}" for line in lines)


def _groups(*counts: int) -> list[str]:
    """`{%0, %1}`, `{%2}` …: consecutive operands in braces."""
    made, first = [], 0
    for count in counts:
        made.append("{" + ", ".join(f"%{place}" for place in range(first, first + count)) + "}")
        first += count
    return made


def _wgmma(row: Wgmma, n: int, a_in_registers: bool, trans_a: int, trans_b: int) -> str:
    count = row.accumulator_registers(n)
    constraint, kind = _REGISTER[row.dtype_acc]
    transposes = ([trans_b] if a_in_registers else [trans_a, trans_b]) if row.transposes else []
    immediates = ", ".join(["p", *map(str, ([1, 1] if row.negates else []) + transposes)])
    groups = _groups(count, A_REGISTERS if a_in_registers else 0)
    b = count + (A_REGISTERS if a_in_registers else 1)
    operand_a = groups[1] if a_in_registers else f"%{count}"
    inputs = _inputs("a", A_REGISTERS, False) if a_in_registers else ['"l"(descriptor_a)']
    bits = "__float_as_uint(value)" if kind == "float" else "value"
    return f"""\
// {_DOC}#asynchronous-warpgroup-level-matrix-instructions-wgmma-mma
#pragma once

#include "common/types.cuh"

using Accumulator = {kind};
constexpr int kRegistersD = {count};
constexpr bool kAInRegisters = {"true" if a_in_registers else "false"};

__device__ __forceinline__ u32 bits_of(Accumulator value) {{ return {bits}; }}

__device__ __forceinline__ void wgmma_mma_async(Accumulator (&d)[kRegistersD], u64 descriptor_a, const u32 (&a)[4],
                                                u64 descriptor_b) {{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, %{b + 1}, 0;\\n"
        "{row.mnemonic(n)} {groups[0]}, {operand_a}, %{b}, {immediates};\\n"
        "}}\\n"
        : {", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))}
        : {", ".join(inputs)}, "l"(descriptor_b), "r"(0));
}}
"""
