// What a launch passes: mirrored byte for byte by `MmaSyncArguments` in workers/cuda/families/mma_sync.py.
#pragma once

#include "common/arguments.cuh"
#include "common/tile_grid.cuh"

/// A and B are the kernel's. A line is contiguous: a row of K, or K-th elements of all rows where the operand is
/// MN-major.
struct MmaSyncArguments : GemmArguments {
    const void* a;
    const void* b;
    long long pitch_a, pitch_b;              // bytes from one line to the next
    long long batch_pitch_a, batch_pitch_b;  // bytes from one product to the next
    int k;
    TileGrid grid;
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
