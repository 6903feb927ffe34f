// How accumulators leave: straight from registers, or through shared memory and TMA.
//
// Accumulator fragment of m64nN (PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", D): thread t of the
// warpgroup holds, for each group j of 8 columns, d[4j..4j+1] at row 16·(t/32) + (t%32)/4, columns
// 8j + 2·(t%4) and the next, and d[4j+2..4j+3] eight rows below.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "sm90_wgmma/finish.cuh"

/// This lane's first row in an m64 block.
__device__ __forceinline__ int fragment_row() {
    return 16 * (threadIdx.x / kWarpSize % 4) + threadIdx.x % kWarpSize / 4;
}

// ------------------------------------------------------------------------------------ straight from registers

/// Exchanges within a quad so that lane q of it gets the four packed pairs of column group q: `pairs[i]` of
/// lane q is columns 2q, 2q+1 of group i on entry, and columns 2i, 2i+1 of group q on return.
__device__ __forceinline__ void transpose_quad(u32 (&pairs)[4]) {
    const int lane = threadIdx.x % 4;
    // Two butterfly steps, each swapping the half that belongs to the partner.
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        const bool upper = lane & step;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & step) continue;
            const u32 give = upper ? pairs[i] : pairs[i + step];
            const u32 got = __shfl_xor_sync(0xFFFFFFFF, give, step);
            if (upper) pairs[i] = got;
            else pairs[i + step] = got;
        }
    }
}

/// Eight of the sixteen 16-bit elements of two vectors, from element `first` (0 to 7) on.
__device__ __forceinline__ uint4 window(const u32 (&low)[4], const u32 (&high)[4], int first) {
    u32 words[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
#pragma unroll
    for (int by = 2; by >= 1; by /= 2) {
#pragma unroll
        for (int i = 0; i + by < 8; ++i) words[i] = first & 2 * by ? words[i + by] : words[i];
    }
    u32 shifted[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) shifted[i] = first & 1 ? __funnelshift_r(words[i], words[i + 1], 16) : words[i];
    return make_uint4(shifted[0], shifted[1], shifted[2], shifted[3]);
}

template <class Config>
struct DirectStore {
    using S = Shape<Config>;
    using F = Finish<Config>;
    using Pair = typename F::Pair;
    using Element = typename F::Element;
    using Acc = Accumulator<Config>;
    static constexpr int kGroups = Config::kTileN / 8;
    /// Rows of a 16-bit C begin at multiples of 16 bytes: eight of their elements are stored at once, or none.
    static constexpr bool kChunks = sizeof(Element) == 2 && !Config::kSwapAb && !Config::kRowsAnywhere;

    const F& finish;
    Element* c;
    int m, n;
    bool wide;  // rows start at multiples of 16 bytes, so that two elements are stored at once

    __device__ __forceinline__ explicit DirectStore(const F& finish_)
        : finish(finish_),
          c(static_cast<Element*>(finish_.args.c)),
          m(finish_.args.m),
          n(finish_.args.n),
          wide(!Config::kRowsAnywhere && finish_.args.ldc * S::kOutputBytes % 16 == 0 && reinterpret_cast<u64>(c) % 16 == 0 &&
               finish_.args.batch_stride_c * S::kOutputBytes % 16 == 0) {}

    /// One m64 block; rows from m on and columns from n on are left out.
    __device__ __forceinline__ void block(int first_row, int column, const Acc (&d)[S::kAccumulators]) {
        if constexpr (Config::kRowsAnywhere) return block_anywhere(first_row, column, d);
        if constexpr (kChunks) return block_in_chunks(first_row, column, d);
        if constexpr (!Config::kSwapAb) return block_in_pairs(first_row, column, d);
#pragma unroll
        for (int j = 0; j + 4 <= kGroups; j += 4) groups<4>(first_row, column + 8 * j, part<4>(d, j));
        constexpr int kRest = kGroups % 4;
        if constexpr (kRest > 0) groups<kRest>(first_row, column + 8 * (kGroups - kRest), part<kRest>(d, kGroups - kRest));
    }

    /// Up to four neighbouring column groups of an m64 block.
    template <int kCount>
    __device__ __forceinline__ void groups(int first_row, int column, const Acc (&d)[4 * kCount]) {
        if constexpr (Config::kSwapAb) return groups_swapped<kCount>(first_row, column, d);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row() + 8 * half;
            Pair pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int group = i < kCount ? i : 0;
                const int from = 4 * group + 2 * half;
                pairs[i] = finish.pair(d[from], d[from + 1], row, column + 8 * group + 2 * (threadIdx.x % 4));
            }
            store_groups(row, column, kCount, pairs);
        }
    }

private:
    /// One m64 block of a C whose rows start at multiples of 16 bytes. Where a row lies and what of it is inside is
    /// found once, and not for every chunk, so that predicates and constant offsets are all that stores need.
    __device__ __forceinline__ void block_in_chunks(int first_row, int column, const Acc (&d)[S::kAccumulators]) {
        const int quad = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row() + 8 * half;
            Element* const at = c + finish.at(row, column + 8 * quad);
            const int columns = row < m ? n - column - 8 * quad : 0;
#pragma unroll
            for (int j = 0; j < kGroups; j += 4) {
                u32 pairs[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int group = j + i < kGroups ? j + i : j, from = 4 * group + 2 * half;
                    pairs[i] = finish.pair(d[from], d[from + 1], row, column + 8 * group + 2 * quad);
                }
                transpose_quad(pairs);
                const bool whole = j + 4 <= kGroups || quad < kGroups - j;
                if (whole && 8 * j < columns) {
                    *reinterpret_cast<uint4*>(at + 8 * j) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
                }
            }
        }
    }

    /// One m64 block of a C of 8 or 32 bits. Where rows start at multiples of 16 bytes, none ends within a pair.
    __device__ __forceinline__ void block_in_pairs(int first_row, int column, const Acc (&d)[S::kAccumulators]) {
        const int left = column + 2 * (threadIdx.x % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row() + 8 * half;
            Element* const at = c + finish.at(row, left);
            const int columns = row < m ? n - left : 0;
            auto pair = [&](int j) {
                return finish.pair(d[4 * j + 2 * half], d[4 * j + 2 * half + 1], row, left + 8 * j);
            };
            if (wide) {
#pragma unroll
                for (int j = 0; j < kGroups; ++j) {
                    if (8 * j < columns) *reinterpret_cast<Pair*>(at + 8 * j) = pair(j);
                }
            } else {
#pragma unroll
                for (int j = 0; j < kGroups; ++j) {
                    const Pair both = pair(j);
                    if (8 * j < columns) at[8 * j] = first_of(both);
                    if (8 * j + 1 < columns) at[8 * j + 1] = second_of(both);
                }
            }
        }
    }

    /// One m64 block of a C whose rows start anywhere: each lane of a quad takes from the lane before it what memory's
    /// next 16-byte chunk lacks, the first one from what the last held a round ago. Only a row's first and last chunk
    /// are stored by elements.
    __device__ __forceinline__ void block_anywhere(int first_row, int column, const Acc (&d)[S::kAccumulators]) {
        const int lane = threadIdx.x % kWarpSize, quad = lane % 4;
        const int end = min(n, column + Config::kTileN);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row() + 8 * half;
            const int ahead = -int(reinterpret_cast<u64>(c + finish.at(row, column)) / sizeof(Element)) & 7;
            u32 before[4] = {};
#pragma unroll
            for (int j = 0; j <= kGroups; j += 4) {
                u32 here[4] = {};
#pragma unroll
                for (int i = 0; i < 4 && j + i < kGroups; ++i) {
                    const int from = 4 * (j + i) + 2 * half;
                    here[i] = finish.pair(d[from], d[from + 1], row, column + 8 * (j + i) + 2 * quad);
                }
                if (j < kGroups) transpose_quad(here);
                u32 left[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    left[i] = __shfl_sync(0xFFFFFFFF, quad == 3 ? before[i] : here[i], (lane & ~3) | (quad + 3) % 4);
                    before[i] = here[i];
                }
                store_chunk(row, column + 8 * (j + quad) + ahead - 8, column, end, window(left, here, ahead));
            }
        }
    }

    /// Eight elements of one row from column `first` on, as far as they lie between `begin` and `end`.
    __device__ __forceinline__ void store_chunk(int row, int first, int begin, int end, const uint4& chunk) {
        if (row >= m) return;
        if (first >= begin && first + 8 <= end) {
            *reinterpret_cast<uint4*>(c + finish.at(row, first)) = chunk;
            return;
        }
        const u32 words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (first + i >= begin && first + i < end) c[finish.at(row, first + i)] = Element(words[i / 2] >> 16 * (i % 2));
        }
    }

    /// Up to four column groups of one row.
    __device__ __forceinline__ void store_groups(int row, int column, int groups, Pair (&pairs)[4]) {
        const int quad = threadIdx.x % 4;
        if constexpr (kChunks) {
            transpose_quad(pairs);
            if (row < m && quad < groups && column + 8 * quad < n) {
                *reinterpret_cast<uint4*>(c + finish.at(row, column + 8 * quad)) =
                    make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (i < groups && row < m) store_pair(row, column + 8 * i + 2 * quad, pairs[i]);
            }
        }
    }

    __device__ __forceinline__ void store_pair(int row, int column, const Pair& pair) {
        Element* const to = c + finish.at(row, column);
        if (wide && column + 1 < n) {
            *reinterpret_cast<Pair*>(to) = pair;
            return;
        }
        if (column < n) to[0] = first_of(pair);
        if (column + 1 < n) to[1] = second_of(pair);
    }

    /// The kernel's columns are the problem's rows: a transposed 8x8 matrix has two neighbours of C in a lane.
    template <int kCount>
    __device__ __forceinline__ void groups_swapped(int first_row, int column, const Acc (&d)[4 * kCount]) {
        const int lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int corner = first_row + 16 * (threadIdx.x / kWarpSize % 4) + 8 * half;
#pragma unroll
            for (int j = 0; j < kCount; ++j) {
                const int from = 4 * j + 2 * half;
                const int row = corner + lane / 4, left = column + 8 * j + 2 * (lane % 4);
                const Pair pair = finish.pair(d[from], d[from + 1], row, left);
                if constexpr (sizeof(Element) == 2) {
                    store_two_rows(corner + 2 * (lane % 4), column + 8 * j + lane / 4, movmatrix_transposed(pair));
                } else if (row < m) {
                    if (left < n) c[finish.at(row, left)] = first_of(pair);
                    if (left + 1 < n) c[finish.at(row, left + 1)] = second_of(pair);
                }
            }
        }
    }

    /// The accumulators of `kCount` column groups from group `j` on.
    template <int kCount>
    __device__ __forceinline__ static const Acc (&part(const Acc (&d)[S::kAccumulators], int j))[4 * kCount] {
        return reinterpret_cast<const Acc(&)[4 * kCount]>(d[4 * j]);
    }

    __device__ __forceinline__ void store_two_rows(int row, int column, u32 pair) {
        if (column >= n) return;
        Element* const to = c + finish.at(row, column);
        if (wide && row + 1 < m) {
            *reinterpret_cast<u32*>(to) = pair;
            return;
        }
        if (row < m) to[0] = Element(pair);
        if (row + 1 < m) to[1] = Element(pair >> 16);
    }

    __device__ __forceinline__ static Element first_of(const Pair& pair) {
        if constexpr (sizeof(Element) == 4) return pair.x;
        else return Element(pair);
    }
    __device__ __forceinline__ static Element second_of(const Pair& pair) {
        if constexpr (sizeof(Element) == 4) return pair.y;
        else return Element(pair >> 8 * sizeof(Element));
    }
};

// ----------------------------------------------------------------------------- through shared memory and TMA

/// A consumer's part of the staged C. Unswapped: [box][rows][box bytes]; swapped: [m64 block][columns][128 bytes],
/// 64 of the kernel's rows side by side. Lines are swizzled as the TMA store reads them back.
template <class Config>
struct StagedStore {
    using S = Shape<Config>;
    using F = Finish<Config>;
    static constexpr int kBytes = S::kOutputBytes;
    static constexpr int kGroups = S::kStagedColumns / 8;
    static constexpr int kBoxBytes = Config::kSwapAb ? 128 : Config::kStoreBoxN * kBytes;
    static constexpr int kBoxes = Config::kSwapAb ? S::kBlocks : S::kStagedColumns / Config::kStoreBoxN;
    static constexpr int kBoxPitch = Config::kSwapAb ? S::kStagedColumns * 128 : S::kRows * kBoxBytes;

    /// Writes columns `from` to `from + kStagedColumns` of all blocks.
    __device__ __forceinline__ static void stage(const F& finish, u32 part, int row, int column, int from,
                                                 const typename Multiplier<Config>::Accumulators& d) {
        const int quad = 2 * (threadIdx.x % 4);
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block) {
            const int first = row + block * kInstructionM + fragment_row();
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
            return part + group / kGroupsPerBox * kBoxPitch + swizzled<kBoxBytes>(row, group % kGroupsPerBox);
        }
    }

    /// Two 32-bit elements: 8 of the 32 bytes that a column group has in a line.
    __device__ __forceinline__ static void store_shared(u32 part, int block, int j, int half, const uint2& pair) {
        const int row = block * kInstructionM + fragment_row() + 8 * half;
        const int byte = 4 * (8 * j + 2 * (threadIdx.x % 4));
        const u32 line = swizzled<kBoxBytes>(row, byte % kBoxBytes / 16);
        const u32 address = part + byte / kBoxBytes * kBoxPitch + line + byte % 16;
        st_shared(address, pair);
    }
};
