// What a launch passes: mirrored byte for byte by `MmaSyncArguments` in workers/cuda/families/mma_sync.py.
#pragma once

#include "common/arguments.cuh"
#include "common/divider.cuh"
#include "common/types.cuh"

/// A and B are the kernel's. A line is contiguous: a row of K, or K-th elements of all rows where the operand is
/// MN-major.
struct MmaSyncArguments : GemmArguments {
    const void* a;
    const void* b;
    long long pitch_a, pitch_b;              // bytes from one line to the next
    long long batch_pitch_a, batch_pitch_b;  // bytes from one product to the next
    int k;
    // The walk over tiles. A group spans several tiles across the direction of the walk; the last one may be narrower.
    int tiles;           // of all products, each slice of K counted
    int k_stages;        // of a whole tile
    int along_n;         // groups are columns of tiles instead of rows
    int last_group;      // number of the last group
    Divider splits;      // slices of K
    Divider product;     // tiles of one product
    Divider group;       // tiles of one group
    Divider width;       // tiles across a group
    Divider last_width;  // tiles across the last group
};

/// What one block computes between two epilogues: a tile, or a slice of its K.
struct Tile {
    int m, n;      // in tiles
    int batch;
    int split;     // slice of K
    int index;     // of the tile without its slice: its place in the workspace
    int k, k_end;  // stages
};

/// Finds tile `at`. Slices of one tile are neighbours; tiles are numbered group by group, the short side fastest;
/// products of a batch follow one another.
template <bool kSplits>
__device__ __forceinline__ Tile tile_at(const MmaSyncArguments& args, int at) {
    Tile tile;
    tile.index = kSplits ? args.splits.quotient(at) : at;
    tile.split = at - tile.index * int(args.splits.divisor);
    tile.batch = args.product.quotient(tile.index);
    const int place = tile.index - tile.batch * int(args.product.divisor);
    const int group = args.group.quotient(place);
    const int within = place - group * int(args.group.divisor);
    const Divider width = group == args.last_group ? args.last_width : args.width;
    const int slow = width.quotient(within);
    const int fast = group * int(args.width.divisor) + within - slow * int(width.divisor);
    tile.m = args.along_n ? slow : fast;
    tile.n = args.along_n ? fast : slow;
    tile.k = 0;
    tile.k_end = args.k_stages;
    if constexpr (kSplits) {
        // The first `k_stages % splits` slices are one stage longer.
        const int each = args.splits.quotient(args.k_stages);
        const int longer = args.k_stages - each * int(args.splits.divisor);
        tile.k = tile.split * each + min(tile.split, longer);
        tile.k_end = tile.k + each + (tile.split < longer ? 1 : 0);
    }
    return tile;
}
