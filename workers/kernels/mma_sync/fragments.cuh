// Fragments: what a warp's lanes hold of A and B for one step of K, loaded by ldmatrix, or word by word.
#pragma once

#include "common/types.cuh"
#include "mma_sync/shape.cuh"
#include "ptx/ld_shared.cuh"
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

    /// Loads the matrices of block `block` at a step.
    __device__ __forceinline__ void load(u32 tile, int block, int step, u32& m0, u32& m1, u32& m2,
                                         u32& m3) const {
        ldmatrix_x4<Op::kMnMajor>(m0, m1, m2, m3, tile + at(block, step));
    }

    /// Loads those of its first eight rows.
    __device__ __forceinline__ void load_half(u32 tile, int block, int step, u32& m0, u32& m1) const {
        static_assert(!kRowsFirst, "matrices along K come first");
        ldmatrix_x2<Op::kMnMajor>(m0, m1, tile + at(block, step));
    }

private:
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

/// MN-major words: a matrix is eight rows by four k, of which lane t loads row t/4 and k t%4.
///
/// The same eight rows of the next span, and of the other half of K, have the same place in their lines: a lane needs
/// one offset for each eight rows of a span.
template <int kRows, int kDepth, bool kSwizzled, int kBlocks, bool kRowsFirst>
struct FragmentRows<Operand<kRows, kDepth, sizeof(u32), true, kSwizzled>, kBlocks, kRowsFirst> {
    using Op = Operand<kRows, kDepth, sizeof(u32), true, kSwizzled>;
    static constexpr int kPerSpan = Op::kGroups / 2;
    static constexpr int kOffsets = kPerSpan < 2 * kBlocks ? kPerSpan : 2 * kBlocks;
    static constexpr int kStepLines = kInstructionKBytes / Op::kElementBytes;

    u32 rows[kOffsets];  // offsets in the tile at step 0

    __device__ __forceinline__ explicit FragmentRows(int first) {
        const int lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (int eight = 0; eight < kOffsets; ++eight) {
            const int row = first + 8 * eight + lane / 4, group = row / 4;
            const int line = group / Op::kGroups * Op::kLines + lane % 4;
            rows[eight] = Op::place(line, group % Op::kGroups) + row % 4 * Op::kElementBytes;
        }
    }

    __device__ __forceinline__ void load(u32 tile, int block, int step, u32& m0, u32& m1, u32& m2,
                                         u32& m3) const {
        m0 = word(tile, 2 * block, 0, step);
        (kRowsFirst ? m2 : m1) = word(tile, 2 * block, 1, step);
        (kRowsFirst ? m1 : m2) = word(tile, 2 * block + 1, 0, step);
        m3 = word(tile, 2 * block + 1, 1, step);
    }

    __device__ __forceinline__ void load_half(u32 tile, int block, int step, u32& m0, u32& m1) const {
        m0 = word(tile, 2 * block, 0, step);
        m1 = word(tile, 2 * block, 1, step);
    }

private:
    __device__ __forceinline__ u32 word(u32 tile, int eight, int half_k, int step) const {
        const int lines = eight / kOffsets * Op::kLines + step * kStepLines + half_k * kStepLines / 2;
        return ld_shared(tile + rows[eight % kOffsets] + lines * Op::kSpanBytes);
    }
};

/// Loads the fragments of this warp.
template <class Config>
struct FragmentLoad {
    using S = Shape<Config>;
    static constexpr int kPairs = ceil_div(S::kBlocksN, 2);

    FragmentRows<typename S::A, S::kBlocksM, true> a;
    FragmentRows<typename S::B, kPairs, false> b;

    __device__ __forceinline__ FragmentLoad(int first_row, int first_column) : a(first_row), b(first_column) {}

    /// Loads step `step` of a stage.
    __device__ __forceinline__ void load(const typename SharedMemory<Config>::Stage& stage, int step,
                                         Fragments<Config>& to) const {
        const u32 tile_a = smem_address(stage.a), tile_b = smem_address(stage.b);
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) {
            a.load(tile_a, i, step, to.a[i][0], to.a[i][1], to.a[i][2], to.a[i][3]);
        }
#pragma unroll
        for (int pair = 0; pair < S::kBlocksN / 2; ++pair) {
            b.load(tile_b, pair, step, to.b[2 * pair][0], to.b[2 * pair][1], to.b[2 * pair + 1][0],
                   to.b[2 * pair + 1][1]);
        }
        if constexpr (S::kBlocksN % 2) {
            constexpr int kLast = S::kBlocksN - 1;
            b.load_half(tile_b, kLast / 2, step, to.b[kLast][0], to.b[kLast][1]);
        }
    }
};
