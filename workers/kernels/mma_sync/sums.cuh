// Sums of a warp as its instruction keeps them: f32 or s32, or pairs of f16, which need half of the registers.
#pragma once

#include "common/accumulator.cuh"
#include "common/fragment.cuh"
#include "mma_sync/shape.cuh"
#include "ptx/convert.cuh"

/// Registers of one instruction's sums: of a thread's four sums, or of two pairs.
template <bool kPairs, class Number>
struct SumRegisters {
    using Type = Number;
    static constexpr int kCount = 4;
};
template <class Number>
struct SumRegisters<true, Number> {
    using Type = u32;
    static constexpr int kCount = 2;
};

template <class Config>
struct Sums {
    using S = Shape<Config>;
    using Registers = SumRegisters<Config::kHalfSums != 0, Accumulator<Config>>;
    using Register = typename Registers::Type;
    using Block = typename Fragment<Config>::Block;
    static constexpr int kCount = Registers::kCount;

    Register of[S::kBlocksM][kCount * S::kBlocksN];

    /// Those of one instruction.
    __device__ __forceinline__ Register (&at(int i, int j))[kCount] {
        return reinterpret_cast<Register(&)[kCount]>(of[i][kCount * j]);
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) {
#pragma unroll
            for (int j = 0; j < kCount * S::kBlocksN; ++j) of[i][j] = 0;
        }
    }

    __device__ __forceinline__ void add(const Sums& other) {
        static_assert(!Config::kHalfSums, "pairs are not added by plain additions");
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) {
#pragma unroll
            for (int j = 0; j < kCount * S::kBlocksN; ++j) of[i][j] += other.of[i][j];
        }
    }

    /// A block of rows as the epilogue takes it: f16 sums are exact in f32.
    __device__ __forceinline__ void widen(int i, Block& to) const {
#pragma unroll
        for (int j = 0; j < kCount * S::kBlocksN; ++j) {
            if constexpr (Config::kHalfSums) {
                to[2 * j] = cvt_f32_f16(u16(of[i][j]));
                to[2 * j + 1] = cvt_f32_f16(u16(of[i][j] >> 16));
            } else {
                to[j] = of[i][j];
            }
        }
    }
};
