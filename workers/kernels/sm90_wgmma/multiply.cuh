// The multiplying side: one stage of the ring into a consumer warpgroup's accumulators.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
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

/// Sums on their way to another block are 32 bits, whatever they count.
__device__ __forceinline__ u32 bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ u32 bits(int value) { return u32(value); }

template <class Number>
__device__ __forceinline__ Number number(u32 bits);
template <>
__device__ __forceinline__ float number<float>(u32 bits) {
    return __uint_as_float(bits);
}
template <>
__device__ __forceinline__ int number<int>(u32 bits) {
    return int(bits);
}

/// Four sums as they travel, and added to others where they arrive.
template <class Acc>
__device__ __forceinline__ uint4 words_of(const Acc* four) {
    return make_uint4(bits(four[0]), bits(four[1]), bits(four[2]), bits(four[3]));
}
template <class Acc>
__device__ __forceinline__ void add_words(Acc* four, const uint4& words) {
    four[0] += number<Acc>(words.x);
    four[1] += number<Acc>(words.y);
    four[2] += number<Acc>(words.z);
    four[3] += number<Acc>(words.w);
}

/// Where 16-byte group `group` of line `line` lies in lines of `kSpanBytes`, swizzled over that span. Lines of another
/// length than a swizzle's span lie as they come: of an odd number of groups, eight lines still meet all banks, of twice
/// an odd number half of them.
template <int kSpanBytes>
__device__ __forceinline__ u32 swizzled(int line, int group) {
    static_assert(kSpanBytes % 16 == 0, "whole groups");
    const u32 offset = line * kSpanBytes + group * 16;
    constexpr u32 kMask = kSpanBytes == 128 ? 7 : kSpanBytes == 64 ? 3 : kSpanBytes == 32 ? 1 : 0;
    return offset ^ (((offset >> 7) & kMask) << 4);
}

/// Descriptor of an operand tile. The strides are those of PTX ISA "Strides": for K-major operands from 8 rows to the
/// next 8 and, unswizzled, between the two 16-byte columns of an instruction; for MN-major ones from 8 of K to the
/// next 8 and from span to span, which change places where there is no swizzle.
template <class Tiling, int kSwizzle>
__device__ __forceinline__ u64 operand_descriptor(u32 address) {
    constexpr u32 kSpanBytes = Tiling::kSpanBytes;
    constexpr u32 kSpanPitch = Tiling::kLines * kSpanBytes;
    if constexpr (Tiling::kMnMajor) {
        if constexpr (kSwizzle == 0) return wgmma_descriptor<0>(address, 8 * kSpanBytes, kSpanPitch);
        else return wgmma_descriptor<kSwizzle>(address, kSpanPitch, 8 * kSpanBytes);
    } else {
        if constexpr (kSwizzle == 0) return wgmma_descriptor<0>(address, kSpanPitch, 8 * kSpanBytes);
        else return wgmma_descriptor<kSwizzle>(address, 16, 8 * kSpanBytes);
    }
}

/// Bytes from the start of a tile to what an instruction reads of it: from `row` of M or N and byte `k_bytes` of K on.
template <class Tiling, int kElementBytes>
__device__ __forceinline__ constexpr u32 operand_offset(int row, int k_bytes) {
    constexpr u32 kSpanBytes = Tiling::kSpanBytes;
    constexpr u32 kSpanPitch = Tiling::kLines * kSpanBytes;
    if constexpr (Tiling::kMnMajor) return row / Tiling::kSpan * kSpanPitch + k_bytes / kElementBytes * kSpanBytes;
    else return k_bytes / kSpanBytes * kSpanPitch + row * kSpanBytes + k_bytes % kSpanBytes;
}

/// One consumer warpgroup's products. Descriptors are made once; what an instruction reads is a constant away from its
/// stage, so that they stay in uniform registers and nothing but an addition stands between two instructions.
template <class Config>
struct Multiplier {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    using Accumulators = Acc[S::kBlocks][S::kAccumulators];
    static constexpr int kStageKBytes = Config::kTileK * Config::kElementBytes;
    /// Bytes of K after which an fp8 sum is promoted: 128 elements, four instructions.
    static constexpr int kPromotionBytes = 128;

    u64 first_a, first_b;  // descriptors of stage 0, from this warpgroup's rows of A on
    u32 tile_a;            // address of A in stage 0, for fragments
    int row;

    __device__ __forceinline__ Multiplier(const SharedMemory<Config>& smem, int row_)
        : first_a(operand_descriptor<typename S::A, Config::kSwizzleA>(
              warp_uniform(smem_address(&smem.a) + operand_offset<typename S::A, Config::kElementBytes>(row_, 0)))),
          first_b(operand_descriptor<typename S::B, Config::kSwizzleB>(warp_uniform(smem_address(&smem.b)))),
          tile_a(smem_address(&smem.a)),
          row(row_) {}

    /// What instructions read of one stage. Made before its bytes are waited for.
    struct Stage {
        u64 a, b;    // descriptors
        u32 tile_a;  // address, for fragments
    };
    __device__ __forceinline__ Stage stage(int index) const {
        const u32 at = warp_uniform(index);
        return {wgmma_advance(first_a, at * sizeof(typename SharedMemory<Config>::TileA)),
                wgmma_advance(first_b, at * sizeof(typename SharedMemory<Config>::TileB)),
                tile_a + at * u32(sizeof(typename SharedMemory<Config>::TileA))};
    }

    /// Puts a stage's products under way; the first of them overwrites `d` where `accumulate` is false. Promoted sums
    /// are complete afterwards, others once their group is waited for.
    __device__ __forceinline__ void multiply(const Stage& from, bool accumulate, Accumulators& d) const {
        if constexpr (Config::kPromoted) {
            multiply_promoted(from.a, from.b, accumulate, d);
        } else if constexpr (Config::kASource == ASource::kRegisters) {
            issue_from_registers(from.tile_a, from.b, accumulate, d);
            wgmma_commit_group();
        } else {
            wgmma_fence();
            issue(from.a, from.b, 0, kStageKBytes, accumulate, d);
            wgmma_commit_group();
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

    /// Issues the products of bytes `from` to `to` of K.
    __device__ __forceinline__ static void issue(u64 a, u64 b, int from, int to, bool accumulate, Accumulators& d) {
#pragma unroll
        for (int k = from; k < to; k += kInstructionKBytes) {
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block) {
                const u64 rows =
                    wgmma_advance(a, operand_offset<typename S::A, Config::kElementBytes>(block * kInstructionM, k));
                each_instruction(b, k, [&](int i, u64 columns) {
                    wgmma_mma_async(part(d[block], i), rows, columns, accumulate || k > from);
                });
            }
        }
    }

    /// The same with A taken through registers: all of the stage's fragments first, then the products.
    __device__ __forceinline__ void issue_from_registers(u32 a, u64 b, bool accumulate, Accumulators& d) const {
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
                each_instruction(b, step * kInstructionKBytes, [&](int i, u64 columns) {
                    wgmma_mma_async(part(d[block], i), fragments[block][step], columns, accumulate || step > 0);
                });
            }
        }
    }

    /// A sum of its own for every 128 of K, added to `d` by the CUDA cores in f32.
    __device__ __forceinline__ static void multiply_promoted(u64 a, u64 b, bool accumulate, Accumulators& d) {
        Accumulators sum;
#pragma unroll
        for (int from = 0; from < kStageKBytes; from += kPromotionBytes) {
            wgmma_fence();
            issue(a, b, from, from + kPromotionBytes, false, sum);
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

    /// The accumulators of instruction `i` across the tile.
    __device__ __forceinline__ static Part& part(Acc (&d)[S::kAccumulators], int i) {
        return reinterpret_cast<Part&>(d[i * (Config::kInstructionN / 2)]);
    }

    template <class Use>
    __device__ __forceinline__ static void each_instruction(u64 b, int k_bytes, Use use) {
#pragma unroll
        for (int i = 0; i < S::kInstructions; ++i) {
            use(i, wgmma_advance(b, operand_offset<typename S::B, Config::kElementBytes>(i * Config::kInstructionN,
                                                                                        k_bytes)));
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
