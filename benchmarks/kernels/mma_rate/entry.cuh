// A bare loop of mma.sync on fragments that stay in registers: what the tensor cores do if nothing has to be moved.
//
// Each warp multiplies as many fragments as one of a 64 x 64 warp tile does in a step of K, over and over.
#pragma once

#include "common/accumulator.cuh"
#include "common/types.cuh"
#include "mma_sync/sums.cuh"
#include "ptx/mma_sync.cuh"

constexpr int kRateThreads = 128;
constexpr int kBlocksM = 4, kBlocksN = 8;
/// Words of operands that a thread reads before it starts.
constexpr int kFragmentWords = 4 * kBlocksM + 2 * kBlocksN;

/// `from` holds `kFragmentWords` words for each thread of a block, `to` takes one from every thread of the grid.
template <class Config>
__device__ __forceinline__ void multiply_only(const u32* from, u32* to, int steps) {
    u32 a[kBlocksM][4], b[kBlocksN][2];
    const u32* const mine = from + threadIdx.x * kFragmentWords;
#pragma unroll
    for (int i = 0; i < 4 * kBlocksM; ++i) a[i / 4][i % 4] = mine[i];
#pragma unroll
    for (int i = 0; i < 2 * kBlocksN; ++i) b[i / 2][i % 2] = mine[4 * kBlocksM + i];
    using Registers = SumRegisters<Config::kHalfSums != 0, Accumulator<Config>>;
    typename Registers::Type d[kBlocksM][kBlocksN][Registers::kCount] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j) mma_sync<Config::kInputA, Config::kInputB>(d[i][j], a[i], b[j]);
        }
    }
    // Every sum is used, so that none is left out.
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN; ++i) {
#pragma unroll
        for (int j = 0; j < Registers::kCount; ++j) {
            const auto sum = d[i / kBlocksN][i % kBlocksN][j];
            if constexpr (Config::kHalfSums) all ^= sum;
            else all ^= bits(sum);
        }
    }
    to[blockIdx.x * kRateThreads + threadIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(kRateThreads, 2) mma_rate(const u32* from, u32* to, int steps) {
    multiply_only<Config>(from, to, steps);
}
