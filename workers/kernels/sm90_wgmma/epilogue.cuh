// How accumulators leave: straight from registers, or through shared memory by stmatrix and TMA.
//
// Accumulator fragment of m64nN (PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", D): thread t of the
// warpgroup holds, for each block j of 8 columns, d[4j..4j+1] at row 16·(t/32) + (t%32)/4, columns
// 8j + 2·(t%4) and the next, and d[4j+2..4j+3] eight rows below.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/tma.cuh"

/// Where 16-byte column group `group` of `row` lies in a C box whose rows are `kRowBytes` and swizzled over
/// that span, as the TMA store reads it back.
template <int kRowBytes>
__device__ __forceinline__ u32 swizzled(int row, int group) {
    static_assert(kRowBytes == 16 || kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128, "a TMA swizzle span");
    const u32 offset = row * kRowBytes + group * 16;
    constexpr u32 kMask = kRowBytes == 128 ? 7 : kRowBytes == 64 ? 3 : kRowBytes == 32 ? 1 : 0;
    return offset ^ (((offset >> 7) & kMask) << 4);
}

/// One m64 block of accumulators into the warpgroup's part of the C tile, [box][rows][box columns].
///
/// `tile` is the shared address of that part, `first_row` the block's row in it, `kRows` its height.
template <class Config, int kRows>
__device__ __forceinline__ void stage_block(u32 tile, int first_row, const float (&d)[Config::kTileN / 2]) {
    constexpr int kBoxBytes = Config::kStoreBoxN * 2;
    constexpr int kGroupsPerBox = Config::kStoreBoxN / 8;
    constexpr int kBlocks = Config::kTileN / 8;
    const int lane = threadIdx.x % kWarpSize;
    const int warp = threadIdx.x / kWarpSize % 4;
    // Lanes 0-15 address the two row halves of column block j, lanes 16-31 those of block j + 1.
    const int row = first_row + 16 * warp + lane % 16;
    auto address = [&](int block) {
        return tile + block / kGroupsPerBox * (kRows * kBoxBytes) + swizzled<kBoxBytes>(row, block % kGroupsPerBox);
    };
#pragma unroll
    for (int j = 0; j + 1 < kBlocks; j += 2) {
        stmatrix_x4(address(j + lane / 16), cvt_bf16x2(d[4 * j], d[4 * j + 1]), cvt_bf16x2(d[4 * j + 2], d[4 * j + 3]),
                    cvt_bf16x2(d[4 * j + 4], d[4 * j + 5]), cvt_bf16x2(d[4 * j + 6], d[4 * j + 7]));
    }
    if constexpr (kBlocks % 2 == 1) {
        constexpr int j = kBlocks - 1;
        stmatrix_x2(address(j), cvt_bf16x2(d[4 * j], d[4 * j + 1]), cvt_bf16x2(d[4 * j + 2], d[4 * j + 3]));
    }
}

/// Hands the warpgroup's finished part of the C tile to TMA, one store a box. One thread calls this.
template <class Config, int kRows>
__device__ __forceinline__ void store_tile(const CUtensorMap* map_c, const unsigned char* tile, int column, int row) {
#pragma unroll 1
    for (int box = 0; box < Config::kTileN / Config::kStoreBoxN; ++box) {
        tma_store_2d(map_c, tile + box * kRows * Config::kStoreBoxN * 2, column + box * Config::kStoreBoxN, row);
    }
    cp_async_bulk_commit_group();
}

/// Exchanges within a quad so that lane q of it gets the four packed pairs of column block q: `pairs[i]` of
/// lane q is columns 2q, 2q+1 of block i on entry, and columns 2i, 2i+1 of block q on return.
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

/// One row's four column blocks from 8j on: 16 bytes a lane where rows allow it, single elements elsewhere.
template <int kBlocks>
__device__ __forceinline__ void store_row(u16* row, int column, int n, bool wide, u32 (&pairs)[4]) {
    const int quad = threadIdx.x % 4;
    if (wide) {
        transpose_quad(pairs);
        const int at = column + 8 * quad;
        if (row != nullptr && quad < kBlocks && at < n) {
            *reinterpret_cast<uint4*>(row + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        const int at = column + 8 * i + 2 * quad;
        if (row != nullptr && at < n) row[at] = u16(pairs[i]);
        if (row != nullptr && at + 1 < n) row[at + 1] = u16(pairs[i] >> 16);
    }
}

/// One m64 block of accumulators straight to global memory; rows from m on and columns from n on are left out.
template <class Config>
__device__ __forceinline__ void store_block_direct(u16* c, long long ldc, int first_row, int column, int m, int n,
                                                   const float (&d)[Config::kTileN / 2]) {
    constexpr int kBlocks = Config::kTileN / 8;
    const int lane = threadIdx.x % kWarpSize;
    const int row = first_row + 16 * (threadIdx.x / kWarpSize % 4) + lane / 4;
    // A 16-byte store needs its address aligned, and whole groups of 8 columns.
    const bool wide = n % 8 == 0 && ldc % 8 == 0 && reinterpret_cast<u64>(c) % 16 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int at = row + 8 * half;
        u16* const to = at < m ? c + at * ldc : nullptr;
#pragma unroll
        for (int j = 0; j < kBlocks; j += 4) {
            u32 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int from = 4 * (j + i < kBlocks ? j + i : 0) + 2 * half;
                pairs[i] = cvt_bf16x2(d[from], d[from + 1]);
            }
            if (j + 4 <= kBlocks) store_row<4>(to, column + 8 * j, n, wide, pairs);
            else store_row<kBlocks % 4>(to, column + 8 * j, n, wide, pairs);
        }
    }
}
