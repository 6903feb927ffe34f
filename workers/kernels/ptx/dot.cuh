// Dot products of four 8-bit integers, added to a 32-bit one.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#integer-arithmetic-instructions-dp4a
#pragma once

#include "common/types.cuh"

template <bool kSignedA, bool kSignedB>
__device__ __forceinline__ int dp4a(u32 a, u32 b, int sum) {
    int d;
    if constexpr (kSignedA && kSignedB) asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    else if constexpr (kSignedA) asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    else if constexpr (kSignedB) asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    else asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    return d;
}
