// One warp, one ldmatrix or stmatrix: an image of shared memory on one side, registers on the other.
#pragma once

#include "common/types.cuh"
#include "layout_dump/image.cuh"
#include "layout_dump/ptx/matrix_moves.cuh"

/// `offsets[lane]` is the byte of the image that the lane points at; `registers` is [lane][kCount].
template <int kCount, bool kTrans>
__device__ __forceinline__ void dump_ldmatrix(const u32* image, int words, const u32* offsets, u32* registers) {
    u32* const smem = load_image(image, words);
    __syncthreads();
    u32 r[kCount];
    ldmatrix<kCount, kTrans>(r, smem_address(smem) + offsets[threadIdx.x]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) registers[threadIdx.x * kCount + i] = r[i];
}

/// Bytes that stmatrix does not write keep those of `image`.
template <int kCount, bool kTrans>
__device__ __forceinline__ void dump_stmatrix(u32* image, int words, const u32* offsets, const u32* registers) {
    u32* const smem = load_image(image, words);
    __syncthreads();
    u32 r[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) r[i] = registers[threadIdx.x * kCount + i];
    stmatrix<kCount, kTrans>(smem_address(smem) + offsets[threadIdx.x], r);
    __syncthreads();
    store_image(image, smem, words);
}

#define DUMP_MATRIX_MOVES(name, count, trans)                                                                          \
    extern "C" __global__ void __launch_bounds__(kWarpSize)                                                            \
        ldmatrix_##name(const u32* image, int words, const u32* offsets, u32* registers) {                             \
        dump_ldmatrix<count, trans>(image, words, offsets, registers);                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(kWarpSize)                                                            \
        stmatrix_##name(u32* image, int words, const u32* offsets, const u32* registers) {                             \
        dump_stmatrix<count, trans>(image, words, offsets, registers);                                                 \
    }

DUMP_MATRIX_MOVES(x1, 1, false)
DUMP_MATRIX_MOVES(x2, 2, false)
DUMP_MATRIX_MOVES(x4, 4, false)
DUMP_MATRIX_MOVES(x1_trans, 1, true)
DUMP_MATRIX_MOVES(x2_trans, 2, true)
DUMP_MATRIX_MOVES(x4_trans, 4, true)
