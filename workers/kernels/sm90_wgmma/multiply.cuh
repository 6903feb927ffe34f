// The multiplying side: one stage of the ring into a consumer warpgroup's accumulators.
#pragma once

#include "common/accumulator.cuh"
#include "common/fragment.cuh"
#include "common/swizzle.cuh"
#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_mma_async.cuh"
#include "sm90_wgmma/shape.cuh"
#include "sm90_wgmma/smem.cuh"

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

/// Byte offset within a tile of an instruction's operand that starts at `row` of M or N and byte `k_bytes` of K.
template <class Tiling, int kElementBytes>
__device__ __forceinline__ constexpr u32 operand_offset(int row, int k_bytes) {
    constexpr u32 kSpanBytes = Tiling::kSpanBytes;
    constexpr u32 kSpanPitch = Tiling::kLines * kSpanBytes;
    if constexpr (Tiling::kMnMajor) return row / Tiling::kSpan * kSpanPitch + k_bytes / kElementBytes * kSpanBytes;
    else return k_bytes / kSpanBytes * kSpanPitch + row * kSpanBytes + k_bytes % kSpanBytes;
}

/// One consumer warpgroup's products. Descriptors are built once. Each instruction's operands lie at a constant offset
/// from their stage, so that descriptors stay in uniform registers and one addition leads from instruction to instruction.
template <class Config>
struct Multiplier {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    using Accumulators = typename Fragment<Config>::Accumulators;
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

    /// Operands of one stage; computed before the wait for its bytes.
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

    /// Issues a stage's products; the first one overwrites `d` unless `accumulate` is set. On return promoted sums are
    /// complete; the others are once the wgmma group has been waited for.
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

    /// Keeps the compiler from reading accumulators ahead of the wait before this call: it does not know what a wait writes.
    __device__ __forceinline__ static void settle(Accumulators& d) {
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < S::kAccumulators; ++i) wgmma_settle(d[block][i]);
        }
    }

private:
    using Part = Acc[Config::kInstructionN / 2];

    /// Issues the products of K bytes `from` to `to`.
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

    /// The same with A in registers: loads all of the stage's fragments, then issues the products.
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

    /// Sums every 128 of K by itself; the CUDA cores add that sum to `d` in f32.
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
    __device__ __forceinline__ static Part& part(typename Fragment<Config>::Block& d, int i) {
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

    /// Loads this warp's 16 rows and 32 bytes of K as the instruction takes them: rows 0-7 and 8-15 of the first 16
    /// bytes, then of the second (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts", A).
    __device__ __forceinline__ static void load_fragment(u32 (&fragment)[4], u32 a, int row, int k_bytes) {
        constexpr int kSpanBytes = S::A::kSpanBytes;
        const int lane = threadIdx.x % kWarpSize;
        const int line = row + 16 * (threadIdx.x / kWarpSize % 4) + lane % 16;
        const u32 span = a + k_bytes / kSpanBytes * (S::A::kLines * kSpanBytes);
        ldmatrix_x4(fragment, span + swizzled<kSpanBytes>(line, k_bytes % kSpanBytes / 16 + lane / 16));
    }
};
