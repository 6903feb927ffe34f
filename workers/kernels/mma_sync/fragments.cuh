// Fragments: what a warp's lanes hold of A and B for one step of K, loaded by ldmatrix.
#pragma once

#include "common/types.cuh"
#include "mma_sync/shape.cuh"
#include "ptx/ldmatrix.cuh"

template <class Config>
struct Fragments {
    u32 a[Shape<Config>::kBlocksM][4];
    u32 b[Shape<Config>::kBlocksN][2];
};

/// Where one lane reads the rows of a warp's 8x8 matrices of one operand: `kBlocks` times 16 rows of M or N.
///
/// Four matrices make 16 rows of one step: two of rows by two of K. In A they are numbered down the rows first, in B
/// along K first, which puts them into the registers in the order of mma.sync's fragments.
template <class Op, int kBlocks, bool kRowsFirst>
struct FragmentRows {
    static constexpr int kStepElements = kInstructionKBytes / Op::kElementBytes;

    u32 rows[Op::kMnMajor ? kBlocks : 1];  // offsets in the tile at step 0

    /// `first` is the warp's first row of the tile.
    __device__ __forceinline__ explicit FragmentRows(int first) {
        const int lane = threadIdx.x % kWarpSize, matrix = lane / 8;
        const int half_row = kRowsFirst ? matrix % 2 : matrix / 2, half_k = kRowsFirst ? matrix / 2 : matrix % 2;
        if constexpr (Op::kMnMajor) {
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
                const int group = first / 8 + 2 * block + half_row;
                const int line = group / Op::kGroups * Op::kLines + 8 * half_k + lane % 8;
                rows[block] = Op::place(line, group % Op::kGroups);
            }
        } else {
            rows[0] = Op::place(first + 8 * half_row + lane % 8, half_k);
        }
    }

    /// Offset in the tile of this lane's row of block `block` at a step. K-major steps of one span differ in the bits
    /// that the swizzle flips.
    __device__ __forceinline__ u32 at(int block, int step) const {
        if constexpr (Op::kMnMajor) {
            return rows[block] + step * kStepElements * Op::kSpanBytes;
        } else {
            const int byte = step * kInstructionKBytes;
            return (rows[0] ^ byte % Op::kSpanBytes) + byte / Op::kSpanBytes * Op::kLines * Op::kSpanBytes +
                   block * 16 * Op::kSpanBytes;
        }
    }
};

/// Loads the fragments of this warp.
template <class Config>
struct FragmentLoad {
    using S = Shape<Config>;
    using A = typename S::A;
    using B = typename S::B;
    static constexpr int kPairs = ceil_div(S::kBlocksN, 2);

    FragmentRows<A, S::kBlocksM, true> a;
    FragmentRows<B, kPairs, false> b;

    __device__ __forceinline__ FragmentLoad(int first_row, int first_column) : a(first_row), b(first_column) {}

    /// Loads step `step` of a stage.
    __device__ __forceinline__ void load(const typename SharedMemory<Config>::Stage& stage, int step,
                                         Fragments<Config>& to) const {
        const u32 tile_a = smem_address(stage.a), tile_b = smem_address(stage.b);
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) {
            ldmatrix_x4<A::kMnMajor>(to.a[i][0], to.a[i][1], to.a[i][2], to.a[i][3], tile_a + a.at(i, step));
        }
#pragma unroll
        for (int pair = 0; pair < S::kBlocksN / 2; ++pair) {
            ldmatrix_x4<B::kMnMajor>(to.b[2 * pair][0], to.b[2 * pair][1], to.b[2 * pair + 1][0],
                                     to.b[2 * pair + 1][1], tile_b + b.at(pair, step));
        }
        if constexpr (S::kBlocksN % 2) {
            constexpr int kLast = S::kBlocksN - 1;
            ldmatrix_x2<B::kMnMajor>(to.b[kLast][0], to.b[kLast][1], tile_b + b.at(kLast / 2, step));
        }
    }
};
