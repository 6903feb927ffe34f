// Which tile comes next: a persistent walk over cluster tiles, grouped so that neighbours in time share operands.
#pragma once

#include "common/types.cuh"

/// What one cluster computes between two epilogues: a tile of one product of the batch, or a slice of its K.
struct Tile {
    int m, n;      // in cluster tiles
    int batch;
    int split;     // which slice of K
    int index;     // of the tile, whatever its slice: names its place in the workspace
    int k, k_end;  // stages, in units of tile_k
};

/// Walks the grid of cluster tiles. Cluster i of n takes tiles i, i + n, …
///
/// Slices of one tile are neighbours. Tiles are numbered group by group. With `along_n` false a group is `group`
/// tile rows high; inside it M runs fastest, then N. With `along_n` true the two change places. The last group
/// may be narrower. Products of a batch follow one another.
struct TileWalk {
    int tiles_m, tiles_n, group, splits, k_stages;
    bool along_n;
    int at, step, count;

    /// Whether there is a tile, and which.
    __device__ __forceinline__ bool next(Tile& tile) {
        if (at >= count) return false;
        tile.split = splits == 1 ? 0 : at % splits;
        tile.index = splits == 1 ? at : at / splits;
        const int per_product = tiles_m * tiles_n;
        tile.batch = tile.index / per_product;
        const int place = tile.index - tile.batch * per_product;
        const int across = along_n ? tiles_n : tiles_m;
        const int along = along_n ? tiles_m : tiles_n;
        const int per_group = group * along;
        const int first = place / per_group * group;
        const int width = min(group, across - first);
        const int within = place % per_group;
        const int fast = first + within % width;
        const int slow = within / width;
        tile.m = along_n ? slow : fast;
        tile.n = along_n ? fast : slow;
        // The first `k_stages % splits` slices are one stage longer.
        const int each = k_stages / splits, longer = k_stages % splits;
        tile.k = tile.split * each + min(tile.split, longer);
        tile.k_end = tile.k + each + (tile.split < longer ? 1 : 0);
        at += step;
        return true;
    }
};

/// A place in the ring of stages, and the parity of the round it is in.
template <int kStages>
struct RingPosition {
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int stages) {
        stage += stages;
        parity ^= stage / kStages & 1;
        stage %= kStages;
    }
};
