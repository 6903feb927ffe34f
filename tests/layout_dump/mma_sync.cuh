// One mma.sync a warp, with C = 0: operand registers in, accumulator registers out.
#pragma once

#include "common/types.cuh"
#include "layout_dump/ptx/mma_sync.cuh"

/// `a`, `b` and `d` are [block][lane][words]; a 64-bit register is two words, the low one first.
extern "C" __global__ void __launch_bounds__(kWarpSize) dump_mma_sync(const u32* a, const u32* b, u32* d) {
    const int thread = blockIdx.x * kWarpSize + threadIdx.x;
    u32 words_a[kWordsA], words_b[kWordsB], words_d[kWordsD];
#pragma unroll
    for (int i = 0; i < kWordsA; ++i) words_a[i] = a[thread * kWordsA + i];
#pragma unroll
    for (int i = 0; i < kWordsB; ++i) words_b[i] = b[thread * kWordsB + i];
    mma_sync(words_d, words_a, words_b);
#pragma unroll
    for (int i = 0; i < kWordsD; ++i) d[thread * kWordsD + i] = words_d[i];
}
