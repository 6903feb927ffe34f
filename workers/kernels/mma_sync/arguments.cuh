// What a launch passes: mirrored byte for byte by `MmaSyncArguments` in workers/cuda/families/mma_sync.py.
#pragma once

#include "common/arguments.cuh"
#include "common/tile_grid.cuh"

/// Stream-K: the first tiles of the grid, whose stages all blocks share equally, one tile after another.
struct StageShares {
    int tiles;     // 0: none are shared
    int longer;    // blocks whose share is one stage longer, the first of the grid
    Divider tile;  // stages of a tile
    Divider share, longer_share;

    /// First stage of a block's share, counted over all shared tiles.
    __device__ __forceinline__ int begin(int block) const { return block * int(share.divisor) + min(block, longer); }

    /// The block whose share a stage belongs to.
    __device__ __forceinline__ int block_of(int stage) const {
        const int first = longer * int(longer_share.divisor);
        return stage < first ? longer_share.quotient(stage) : longer + share.quotient(stage - first);
    }
};

/// A and B are the kernel's. A line is contiguous: a row of K, or K-th elements of all rows where the operand is
/// MN-major.
struct MmaSyncArguments : GemmArguments {
    const void* a;
    const void* b;
    long long pitch_a, pitch_b;              // bytes from one line to the next
    long long batch_pitch_a, batch_pitch_b;  // bytes from one product to the next
    int k;
    TileGrid grid;
    StageShares shares;
};

/// Finds tile `at` of a launch, or the slice of one.
template <bool kSplits>
__device__ __forceinline__ Tile tile_at(const TileGrid& grid, int at) {
    Tile tile;
    tile.index = kSplits ? grid.splits.quotient(at) : at;
    tile.split = at - tile.index * int(grid.splits.divisor);
    tile.k = 0;
    tile.k_end = grid.k_stages;
    grid.locate(tile);
    if constexpr (kSplits) grid.slice(tile);
    return tile;
}
