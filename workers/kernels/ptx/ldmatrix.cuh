// ldmatrix: 8x8 matrices of 16-bit elements from shared memory into the fragments of a warp.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-ldmatrix
//
// Lane t gives the address of row t%8 of matrix t/8. It receives elements 2·(t%4) and the next of row t/4 of each
// matrix; transposed, of column t/4.
#pragma once

#include "common/types.cuh"

template <bool kTransposed>
__device__ __forceinline__ void ldmatrix_x4(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address) {
    if constexpr (kTransposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                     : "r"(row_address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                     : "r"(row_address)
                     : "memory");
    }
}

/// Lanes 0 to 15 give addresses.
template <bool kTransposed>
__device__ __forceinline__ void ldmatrix_x2(u32& m0, u32& m1, u32 row_address) {
    if constexpr (kTransposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(m0), "=r"(m1)
                     : "r"(row_address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(m0), "=r"(m1)
                     : "r"(row_address)
                     : "memory");
    }
}
