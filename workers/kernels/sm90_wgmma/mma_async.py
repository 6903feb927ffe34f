"""Text of the one `wgmma.mma_async` wrapper that a config needs.

The instruction names every accumulator register, so that each N is another instruction; only the one in
use is generated.
"""

from __future__ import annotations

from collections.abc import Mapping

from space.instructions.wgmma import wgmma_for


def wgmma_mma_async(constants: Mapping[str, int | str]) -> str:
    """`ptx/wgmma_mma_async.cuh` for the N, dtypes, majors and source of A in `constants`.

    Source: PTX ISA 9.0 §9.7.15.5, wgmma.mma_async.
    """
    n, integers = int(constants["instruction_n"]), bool(constants["integers"])
    row = wgmma_for(str(constants["input_a"]), str(constants["input_b"]), "s32" if integers else "f32")
    if row is None:
        raise AssertionError(f"no wgmma for {dict(constants)}: the rules let it pass")
    from_registers = constants["a_source"] == "registers"
    count = n // 2
    places = iter(range(count, count + 7))
    a = "{" + ", ".join(f"%{next(places)}" for _ in range(4)) + "}" if from_registers else f"%{next(places)}"
    b, accumulate = f"%{next(places)}", f"%{next(places)}"
    modifiers = ["1", "1"] if row.negates else []
    if row.transposes:
        modifiers += [str(constants["a_mn_major"])] * (not from_registers) + [str(constants["b_mn_major"])]
    outputs = ", ".join(f"%{place}" for place in range(count))
    operands = ", ".join(f'"+{"r" if integers else "f"}"(d[{place}])' for place in range(count))
    number = "int" if integers else "float"
    declared = "const u32 (&a)[4]" if from_registers else "u64 a"
    passed = ", ".join(f'"r"(a[{i}])' for i in range(4)) if from_registers else '"l"(a)'
    return f"""\
// D (+)= A·B for one m64n{n}k{row.k} block. `accumulate` false overwrites D.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions-wgmma-mma
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ void wgmma_mma_async({number} (&d)[{count}], {declared}, u64 b, bool accumulate) {{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, {accumulate}, 0;\\n"
        "{row.mnemonic(n)} "
        "{{{outputs}}}, {a}, {b}, {", ".join(["p", *modifiers])};\\n"
        "}}\\n"
        : {operands}
        : {passed}, "l"(b), "r"(int(accumulate)));
}}
"""
