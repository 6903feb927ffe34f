"""Text of the one `wgmma.mma_async` wrapper that a config needs.

The instruction names every accumulator register, so that each N is another instruction; only the one in
use is generated.
"""

from __future__ import annotations


def wgmma_mma_async(n: int) -> str:
    """`ptx/wgmma_mma_async.cuh` for m64nNk16, bf16 from shared memory (K-major both) into f32.

    Source: PTX ISA 9.0 §9.7.15.5, wgmma.mma_async.
    """
    count = n // 2
    outputs = ", ".join(f"%{place}" for place in range(count))
    operands = ", ".join(f'"+f"(d[{place}])' for place in range(count))
    return f"""\
// D (+)= A·B for one m64n{n}k16 block, both operands in shared memory. `accumulate` false overwrites D.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions-wgmma-mma
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ void wgmma_mma_async(float (&d)[{count}], u64 a, u64 b, bool accumulate) {{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, %{count + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{outputs}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n"
        "}}\\n"
        : {operands}
        : "l"(a), "l"(b), "r"(int(accumulate)));
}}
"""
