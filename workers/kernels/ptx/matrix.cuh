// Movement of matrices between registers and shared memory: 8x8 of 16-bit elements, and pairs of wider ones.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions
//
// A matrix in registers: lane t holds elements 2·(t%4) and the next of row t/4.
#pragma once

#include "common/types.cuh"

/// Lane t gives the address of row t%8 of matrix t/8.
__device__ __forceinline__ void ldmatrix_x4(u32 (&matrices)[4], u32 row_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(row_address)
                 : "memory");
}

template <bool kTransposed>
__device__ __forceinline__ void stmatrix_x4(u32 row_address, u32 m0, u32 m1, u32 m2, u32 m3) {
    if constexpr (kTransposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
                     "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(m0),
                     "r"(m1), "r"(m2), "r"(m3)
                     : "memory");
    }
}

template <bool kTransposed>
__device__ __forceinline__ void stmatrix_x2(u32 row_address, u32 m0, u32 m1) {
    if constexpr (kTransposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row_address), "r"(m0),
                     "r"(m1)
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row_address), "r"(m0), "r"(m1)
                     : "memory");
    }
}

/// The transposed matrix, in the same lanes.
__device__ __forceinline__ u32 movmatrix_transposed(u32 matrix) {
    u32 transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
    return transposed;
}

/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-st
__device__ __forceinline__ void st_shared(u32 address, const uint2& pair) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(pair.x), "r"(pair.y) : "memory");
}
