// The epilogue that stages C in shared memory and leaves its store to TMA.
#pragma once

#include "common/finish.cuh"
#include "common/fragment.cuh"
#include "common/swizzle.cuh"
#include "common/types.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "sm90_wgmma/shape.cuh"

/// A consumer's part of the staged C. Unswapped: [box][rows][box bytes]; swapped: [m64 block][columns][128 bytes],
/// 64 of the kernel's rows side by side. Lines are swizzled as the TMA store reads them back.
template <class Config>
struct StagedStore {
    using S = Shape<Config>;
    using F = Finish<Config>;
    static constexpr int kBytes = output_bytes(Config::kOutput);
    static constexpr int kGroups = S::kStagedColumns / 8;
    static constexpr int kBoxBytes = Config::kSwapAb ? 128 : Config::kStoreBoxN * kBytes;
    static constexpr int kBoxes = Config::kSwapAb ? S::kBlocks : S::kStagedColumns / Config::kStoreBoxN;
    static constexpr int kBoxPitch = Config::kSwapAb ? S::kStagedColumns * 128 : S::kRows * kBoxBytes;

    /// Writes columns `from` to `from + kStagedColumns` of all blocks.
    __device__ __forceinline__ static void stage(const F& finish, u32 part, int row, int column, int from,
                                                 const typename Fragment<Config>::Accumulators& d) {
        const int quad = 2 * (threadIdx.x % 4);
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block) {
            const int first = row + block * kInstructionM + fragment_row<Config>();
            auto pair = [&](int j, int half) {
                const int at = 4 * (from / 8 + j) + 2 * half;
                return finish.pair(d[block][at], d[block][at + 1], first + 8 * half, column + from + 8 * j + quad);
            };
            if constexpr (kBytes == 2) {
#pragma unroll
                for (int j = 0; j + 1 < kGroups; j += 2) {
                    stmatrix_x4<Config::kSwapAb != 0>(matrix_row(part, block, j), pair(j, 0), pair(j, 1),
                                                      pair(j + 1, 0), pair(j + 1, 1));
                }
                if constexpr (kGroups % 2 == 1) {
                    constexpr int j = kGroups - 1;
                    stmatrix_x2<Config::kSwapAb != 0>(matrix_row(part, block, j), pair(j, 0), pair(j, 1));
                }
            } else {
#pragma unroll
                for (int j = 0; j < kGroups; ++j) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) store_shared(part, block, j, half, pair(j, half));
                }
            }
        }
    }

    /// Hands the part to TMA, a store a box. One thread calls this.
    __device__ __forceinline__ static void store(const CUtensorMap* map, const unsigned char* part, int row, int column,
                                                 int m, int n, int batch) {
#pragma unroll 1
        for (int box = 0; box < kBoxes; ++box) {
            const int x = Config::kSwapAb ? row + box * kInstructionM : column + box * Config::kStoreBoxN;
            const int y = Config::kSwapAb ? column : row;
            const bool inside = Config::kSwapAb ? x < m && y < n : x < n && y < m;
            if (inside) tma_store_3d(map, part + box * kBoxPitch, x, y, batch);
        }
        cp_async_bulk_commit_group();
    }

private:
    /// Lanes 0-7, 8-15, 16-23, 24-31 address the rows of one matrix each: two row halves of column group j, then
    /// those of group j + 1.
    __device__ __forceinline__ static u32 matrix_row(u32 part, int block, int j) {
        const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize % 4;
        const int group = j + lane / 16;
        if constexpr (Config::kSwapAb) {
            return part + block * kBoxPitch + swizzled<128>(8 * group + lane % 8, 2 * warp + lane / 8 % 2);
        } else {
            const int row = block * kInstructionM + 16 * warp + lane % 16;
            constexpr int kGroupsPerBox = kBoxBytes / 16;
            // Where j and j + 1 always share a box, `j` alone tells which: a constant.
            const int box = (kGroupsPerBox % 2 == 0 || kBoxes == 1 ? j : group) / kGroupsPerBox;
            return part + box * kBoxPitch + swizzled<kBoxBytes>(row, group - box * kGroupsPerBox);
        }
    }

    /// Two 32-bit elements: 8 of the 32 bytes that a column group has in a line.
    __device__ __forceinline__ static void store_shared(u32 part, int block, int j, int half, const uint2& pair) {
        const int row = block * kInstructionM + fragment_row<Config>() + 8 * half;
        const int byte = 4 * (8 * j + 2 * (threadIdx.x % 4));
        const u32 line = swizzled<kBoxBytes>(row, byte % kBoxBytes / 16);
        const u32 address = part + byte / kBoxBytes * kBoxPitch + line + byte % 16;
        st_shared(address, pair);
    }
};
