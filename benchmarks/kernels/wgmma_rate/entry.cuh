// A bare loop of wgmma on operands that stay in shared memory: what the tensor cores do if nothing has to be moved.
//
// Two warpgroups, each with 64 rows of A and all columns of B, multiply the same 128 bytes of K over and over.
#pragma once

#include "common/accumulator.cuh"
#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_mma_async.cuh"

constexpr int kRateWarpgroups = 2;
constexpr int kRateThreads = kRateWarpgroups * kWarpgroupSize;
constexpr int kRateRows = 64;
/// Bytes of K in a line, one span of the 128-byte swizzle, and those of one instruction.
constexpr int kLineBytes = 128, kStepBytes = 32;

template <int kColumns>
struct RateOperands {
    struct alignas(1024) Rows {
        uint4 lines[kRateRows * kLineBytes / 16];
    };
    struct alignas(1024) Columns {
        uint4 lines[kColumns * kLineBytes / 16];
    };
    Rows a[kRateWarpgroups];
    Columns b;
};

/// `from` holds as many bytes as `RateOperands`, `to` takes one word from every thread of the grid.
template <class Config>
__device__ __forceinline__ void multiply_only(const uint4* from, u32* to, int steps) {
    using Operands = RateOperands<Config::kInstructionN>;
    __shared__ Operands operands;
    uint4* const words = reinterpret_cast<uint4*>(&operands);
    for (int i = threadIdx.x; i < int(sizeof(Operands) / 16); i += kRateThreads) words[i] = from[i];
    fence_proxy_async();
    __syncthreads();
    const u32 warpgroup = warp_uniform(threadIdx.x / kWarpgroupSize);
    const u64 a = wgmma_descriptor<128>(smem_address(&operands.a[warpgroup]), 16, 8 * kLineBytes);
    const u64 b = wgmma_descriptor<128>(smem_address(&operands.b), 16, 8 * kLineBytes);
    Accumulator<Config> d[Config::kInstructionN / 2];
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kLineBytes; k += kStepBytes) {
            wgmma_mma_async(d, wgmma_advance(a, k), wgmma_advance(b, k), step > 0 || k > 0);
        }
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
    // Every sum is used, so that none is left out.
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < Config::kInstructionN / 2; ++i) {
        wgmma_settle(d[i]);
        all ^= bits(d[i]);
    }
    to[blockIdx.x * kRateThreads + threadIdx.x] = all;
}

extern "C" __global__ void __launch_bounds__(kRateThreads, 1) wgmma_rate(const uint4* from, u32* to, int steps) {
    multiply_only<Config>(from, to, steps);
}
