// Conversions between f32 and bf16, and the store of 8x8 matrices to shared memory.
#pragma once

#include "common/types.cuh"

/// Two f32 to packed bf16, `low` in the low half, rounded to nearest even.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
__device__ __forceinline__ u32 cvt_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// Exact: a bf16 is the upper half of an f32.
__device__ __forceinline__ float cvt_f32(u16 bits) { return __uint_as_float(u32(bits) << 16); }

/// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-stmatrix
__device__ __forceinline__ void stmatrix_x4(u32 row_address, u32 m0, u32 m1, u32 m2, u32 m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2(u32 row_address, u32 m0, u32 m1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row_address), "r"(m0), "r"(m1)
                 : "memory");
}
