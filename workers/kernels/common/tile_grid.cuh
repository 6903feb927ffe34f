// How the tiles of a launch are numbered, and how the K of a tile is cut.
#pragma once

#include "common/divider.cuh"
#include "common/types.cuh"

/// What a block or a cluster computes between two epilogues: a tile of one product of the batch, or a slice of its K.
struct Tile {
    int m, n;      // in tiles of the grid
    int batch;
    int split;     // slice of K
    int index;     // of the tile without its slice: its place in the workspace
    int k, k_end;  // stages
};

/// Tiles are numbered group by group; a group spans several tiles across the direction of the walk, and inside it the
/// short side runs fastest. Every other group is walked backwards: it begins where the one before ended, beside rows or
/// columns that are still in L2. Products of a batch follow one another, and slices of one tile are neighbours.
///
/// Mirrored byte for byte by `TileGrid` in workers/cuda/families/arguments.py.
struct TileGrid {
    int tiles;           // of all products, each slice of K counted
    int k_stages;        // of a whole tile
    int along_n;         // groups are columns of tiles instead of rows
    int last_group;      // number of the last group, which may be narrower
    Divider splits;      // slices of K
    Divider product;     // tiles of one product
    Divider group;       // tiles of one group
    Divider width;       // tiles across a group
    Divider last_width;  // tiles across the last group

    /// Finds the coordinates of tile `index`.
    __device__ __forceinline__ void locate(Tile& tile) const {
        tile.batch = product.quotient(tile.index);
        const int place = tile.index - tile.batch * int(product.divisor);
        const int at = group.quotient(place);
        const int within = place - at * int(group.divisor);
        const Divider across = at == last_group ? last_width : width;
        const int steps = across.quotient(within);
        const int fast = at * int(width.divisor) + within - steps * int(across.divisor);
        const int slow = at % 2 == 0 ? steps : width.quotient(group.divisor) - 1 - steps;
        tile.m = along_n ? slow : fast;
        tile.n = along_n ? fast : slow;
    }

    /// Finds the stages of slice `split`. The first `k_stages % splits` slices are one stage longer.
    __device__ __forceinline__ void slice(Tile& tile) const {
        const int each = splits.quotient(k_stages);
        const int longer = k_stages - each * int(splits.divisor);
        tile.k = tile.split * each + min(tile.split, longer);
        tile.k_end = tile.k + each + (tile.split < longer ? 1 : 0);
    }
};
