// The multiplying side: one stage of the ring into a consumer warpgroup's accumulators.
#pragma once

#include "common/types.cuh"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_mma_async.cuh"
#include "sm90_wgmma/shape.cuh"
#include "sm90_wgmma/smem.cuh"

/// s32 for whole numbers, f32 otherwise.
template <bool kIntegers>
struct AccumulatorOf {
    using Type = float;
};
template <>
struct AccumulatorOf<true> {
    using Type = int;
};
template <class Config>
using Accumulator = typename AccumulatorOf<Config::kIntegers != 0>::Type;

/// Where 16-byte group `group` of line `line` lies in lines of `kSpanBytes`, swizzled over that span. Lines of another
/// length than a swizzle's span lie as they come: of an odd number of groups, eight lines still meet all banks.
template <int kSpanBytes>
__device__ __forceinline__ u32 swizzled(int line, int group) {
    static_assert(kSpanBytes % 16 == 0 && kSpanBytes <= 128, "whole groups, of one span");
    const u32 offset = line * kSpanBytes + group * 16;
    constexpr u32 kMask = kSpanBytes == 128 ? 7 : kSpanBytes == 64 ? 3 : kSpanBytes == 32 ? 1 : 0;
    return offset ^ (((offset >> 7) & kMask) << 4);
}

/// Descriptor of what an instruction reads of a tile: from `row` of M or N and byte `k_bytes` of K on. The strides
/// are those of PTX ISA "Strides": for K-major operands from 8 rows to the next 8 and, unswizzled, between the two
/// 16-byte columns of an instruction; for MN-major ones from 8 of K to the next 8 and from span to span, which
/// change places where there is no swizzle.
template <class Tiling, int kSwizzle, int kElementBytes>
__device__ __forceinline__ u64 operand_descriptor(u32 tile, int row, int k_bytes) {
    constexpr u32 kSpanBytes = Tiling::kSpanBytes;
    constexpr u32 kSpanPitch = Tiling::kLines * kSpanBytes;
    if constexpr (Tiling::kMnMajor) {
        const u32 address = tile + row / Tiling::kSpan * kSpanPitch + k_bytes / kElementBytes * kSpanBytes;
        if constexpr (kSwizzle == 0) return wgmma_descriptor<0>(address, 8 * kSpanBytes, kSpanPitch);
        else return wgmma_descriptor<kSwizzle>(address, kSpanPitch, 8 * kSpanBytes);
    } else {
        const u32 address = tile + k_bytes / kSpanBytes * kSpanPitch + row * kSpanBytes + k_bytes % kSpanBytes;
        if constexpr (kSwizzle == 0) return wgmma_descriptor<0>(address, kSpanPitch, 8 * kSpanBytes);
        else return wgmma_descriptor<kSwizzle>(address, 16, 8 * kSpanBytes);
    }
}

template <class Config>
struct Multiplier {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    using Accumulators = Acc[S::kBlocks][S::kAccumulators];
    static constexpr int kStageKBytes = Config::kTileK * Config::kElementBytes;
    /// Bytes of K after which an fp8 sum is promoted: 128 elements, four instructions.
    static constexpr int kPromotionBytes = 128;

    /// Issues the products of bytes `from` to `to` of K; the first of them overwrites where `accumulate` is false.
    __device__ __forceinline__ static void issue(u32 a, u32 b, int row, int from, int to, bool accumulate,
                                                 Accumulators& d) {
#pragma unroll
        for (int k = from; k < to; k += kInstructionKBytes) {
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block) {
                const u64 descriptor_a = operand_descriptor<typename S::A, Config::kSwizzleA, Config::kElementBytes>(
                    a, row + block * kInstructionM, k);
                each_instruction(b, k, [&](int i, u64 descriptor_b) {
                    wgmma_mma_async(part(d[block], i), descriptor_a, descriptor_b, accumulate || k > from);
                });
            }
        }
    }

    /// The same with A taken through registers: all of the stage's fragments first, then the products.
    __device__ __forceinline__ static void issue_from_registers(u32 a, u32 b, int row, bool accumulate,
                                                                Accumulators& d) {
        constexpr int kSteps = kStageKBytes / kInstructionKBytes;
        u32 fragments[S::kBlocks][kSteps][4];
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block) {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                load_fragment(fragments[block][step], a, row + block * kInstructionM, step * kInstructionKBytes);
            }
        }
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block) {
                each_instruction(b, step * kInstructionKBytes, [&](int i, u64 descriptor_b) {
                    wgmma_mma_async(part(d[block], i), fragments[block][step], descriptor_b, accumulate || step > 0);
                });
            }
        }
    }

    /// A sum of its own for every 128 of K, added to `d` by the CUDA cores in f32.
    __device__ __forceinline__ static void multiply_promoted(u32 a, u32 b, int row, bool accumulate, Accumulators& d) {
        Accumulators sum;
#pragma unroll
        for (int from = 0; from < kStageKBytes; from += kPromotionBytes) {
            wgmma_fence();
            issue(a, b, row, from, from + kPromotionBytes, false, sum);
            wgmma_commit_group();
            wgmma_wait_group<0>();
            settle(sum);
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block) {
#pragma unroll
                for (int i = 0; i < S::kAccumulators; ++i) {
                    d[block][i] = accumulate || from > 0 ? d[block][i] + sum[block][i] : sum[block][i];
                }
            }
        }
    }

    /// Keeps the compiler from using accumulators before the wait that precedes this: it can't see what a wait writes.
    __device__ __forceinline__ static void settle(Accumulators& d) {
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < S::kAccumulators; ++i) wgmma_settle(d[block][i]);
        }
    }

private:
    using Part = Acc[Config::kInstructionN / 2];

    /// The accumulators of instruction `i` across the tile.
    __device__ __forceinline__ static Part& part(Acc (&d)[S::kAccumulators], int i) {
        return reinterpret_cast<Part&>(d[i * (Config::kInstructionN / 2)]);
    }

    template <class Use>
    __device__ __forceinline__ static void each_instruction(u32 b, int k_bytes, Use use) {
#pragma unroll
        for (int i = 0; i < S::kInstructions; ++i) {
            use(i, operand_descriptor<typename S::B, Config::kSwizzleB, Config::kElementBytes>(
                       b, i * Config::kInstructionN, k_bytes));
        }
    }

    /// This warp's 16 rows and 32 bytes of K as the instruction wants them: rows 0-7 and 8-15 of the first 16
    /// bytes, then of the second (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts", A).
    __device__ __forceinline__ static void load_fragment(u32 (&fragment)[4], u32 a, int row, int k_bytes) {
        constexpr int kSpanBytes = S::A::kSpanBytes;
        const int lane = threadIdx.x % kWarpSize;
        const int line = row + 16 * (threadIdx.x / kWarpSize % 4) + lane % 16;
        const u32 span = a + k_bytes / kSpanBytes * (S::A::kLines * kSpanBytes);
        ldmatrix_x4(fragment, span + swizzled<kSpanBytes>(line, k_bytes % kSpanBytes / 16 + lane / 16));
    }
};
