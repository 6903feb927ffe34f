// The store of fragments straight from registers into C.
#pragma once

#include "common/accumulator.cuh"
#include "common/finish.cuh"
#include "common/fragment.cuh"
#include "common/types.cuh"
#include "ptx/matrix.cuh"

/// Exchanges within a quad so that lane q gets the four packed pairs of column group q: `pairs[i]` of lane q is
/// columns 2q, 2q+1 of group i on entry, and columns 2i, 2i+1 of group q on return.
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
    using F = Finish<Config>;
    using Pair = typename F::Pair;
    using Element = typename F::Element;
    using Acc = Accumulator<Config>;
    using Block = typename Fragment<Config>::Block;
    static constexpr int kGroups = Fragment<Config>::kColumns / 8;
    static constexpr int kBytes = sizeof(Element);
    /// Rows of a 16-bit C start at multiples of 16 bytes: eight elements of a row are stored at once, or none.
    static constexpr bool kChunks = kBytes == 2 && !Config::kSwapAb && !Config::kRowsAnywhere;

    const F& finish;
    Element* c;
    int m, n;
    bool wide;  // rows start at multiples of 16 bytes, so that two elements are stored at once

    __device__ __forceinline__ explicit DirectStore(const F& finish_)
        : finish(finish_),
          c(static_cast<Element*>(finish_.args.c)),
          m(finish_.args.m),
          n(finish_.args.n),
          wide(!Config::kRowsAnywhere && finish_.args.ldc * kBytes % 16 == 0 && reinterpret_cast<u64>(c) % 16 == 0 &&
               finish_.args.batch_stride_c * kBytes % 16 == 0) {}

    /// Stores one block of rows, as far as it lies inside C.
    __device__ __forceinline__ void block(int first_row, int column, const Block& d) {
        if constexpr (Config::kRowsAnywhere) return block_anywhere(first_row, column, d);
        if constexpr (!Config::kSwapAb) return groups<kGroups>(first_row, column, d);
#pragma unroll
        for (int j = 0; j + 4 <= kGroups; j += 4) groups<4>(first_row, column + 8 * j, part<4>(d, j));
        constexpr int kRest = kGroups % 4;
        if constexpr (kRest > 0) groups<kRest>(first_row, column + 8 * (kGroups - kRest), part<kRest>(d, kGroups - kRest));
    }

    /// Stores neighbouring column groups of a block of rows, as far as they lie inside C.
    template <int kCount>
    __device__ __forceinline__ void groups(int first_row, int column, const Acc (&d)[4 * kCount]) {
        if constexpr (Config::kSwapAb) return groups_swapped<kCount>(first_row, column, d);
        if constexpr (kChunks) return groups_in_chunks<kCount>(first_row, column, d);
        return groups_in_pairs<kCount>(first_row, column, d);
    }

    /// Stores unit `unit` of a part of a tile: `kCount` column groups. Units run across a block of rows, then down.
    template <int kCount>
    __device__ __forceinline__ void unit(int row, int column, int unit, const Acc (&d)[4 * kCount]) {
        constexpr int kAcross = kGroups / kCount;
        groups<kCount>(row + unit / kAcross * Fragment<Config>::kBlockRows, column + unit % kAcross * (8 * kCount), d);
    }

private:
    /// Groups of a C whose rows start at multiples of 16 bytes. The row's address and the columns left in it are found
    /// once rather than for every chunk: each store then needs only a predicate and a constant offset.
    template <int kCount>
    __device__ __forceinline__ void groups_in_chunks(int first_row, int column, const Acc (&d)[4 * kCount]) {
        const int quad = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row<Config>() + 8 * half;
            Element* const at = c + finish.at(row, column + 8 * quad);
            const int columns = row < m ? n - column - 8 * quad : 0;
#pragma unroll
            for (int j = 0; j < kCount; j += 4) {
                u32 pairs[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int group = j + i < kCount ? j + i : j, from = 4 * group + 2 * half;
                    pairs[i] = finish.pair(d[from], d[from + 1], row, column + 8 * group + 2 * quad);
                }
                transpose_quad(pairs);
                const bool whole = j + 4 <= kCount || quad < kCount - j;
                if (whole && 8 * j < columns) {
                    *reinterpret_cast<uint4*>(at + 8 * j) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
                }
            }
        }
    }

    /// Groups of any other C, by pairs or single elements. Where rows start at multiples of 16 bytes, none ends within
    /// a pair.
    template <int kCount>
    __device__ __forceinline__ void groups_in_pairs(int first_row, int column, const Acc (&d)[4 * kCount]) {
        const int left = column + 2 * (threadIdx.x % 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row<Config>() + 8 * half;
            Element* const at = c + finish.at(row, left);
            const int columns = row < m ? n - left : 0;
            auto pair = [&](int j) {
                return finish.pair(d[4 * j + 2 * half], d[4 * j + 2 * half + 1], row, left + 8 * j);
            };
            if (wide) {
#pragma unroll
                for (int j = 0; j < kCount; ++j) {
                    if (8 * j < columns) *reinterpret_cast<Pair*>(at + 8 * j) = pair(j);
                }
            } else {
#pragma unroll
                for (int j = 0; j < kCount; ++j) {
                    const Pair both = pair(j);
                    if (8 * j < columns) at[8 * j] = first_of(both);
                    if (8 * j + 1 < columns) at[8 * j + 1] = second_of(both);
                }
            }
        }
    }

    /// One block of rows of a 16-bit C whose rows start anywhere: each lane of a quad takes from the lane before it
    /// what memory's next 16-byte chunk lacks; the first lane takes it from what the last one held a round ago. Only a
    /// row's first and last chunk are stored element by element.
    __device__ __forceinline__ void block_anywhere(int first_row, int column, const Block& d) {
        const int lane = threadIdx.x % kWarpSize, quad = lane % 4;
        const int end = min(n, column + 8 * kGroups);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + fragment_row<Config>() + 8 * half;
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

    /// Stores eight elements of one row from column `first` on, as far as they lie between `begin` and `end`.
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

    /// With swap_ab, the kernel's columns are the problem's rows: once an 8x8 matrix is transposed, a lane holds two
    /// neighbours of C.
    template <int kCount>
    __device__ __forceinline__ void groups_swapped(int first_row, int column, const Acc (&d)[4 * kCount]) {
        const int lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int corner = first_row + Fragment<Config>::warp_row() + 8 * half;
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
    __device__ __forceinline__ static const Acc (&part(const Block& d, int j))[4 * kCount] {
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
