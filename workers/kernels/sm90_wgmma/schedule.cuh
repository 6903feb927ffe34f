// Which tile comes next: a persistent walk over cluster tiles, grouped so that neighbours in time share operands.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/arguments.cuh"

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
/// Slices of one tile are neighbours. Tiles are numbered group by group: inside a group the short side runs
/// fastest. Products of a batch follow one another. In a cluster along K each block has a slice of the same tile.
template <class Config>
struct TileWalk {
    static constexpr bool kSplits = Config::kSplits != 0;
    const GemmArguments& args;
    int at, step;
    int place_k;  // in the cluster

    __device__ __forceinline__ TileWalk(const GemmArguments& args_, int cluster, int clusters, int place_k_)
        : args(args_), at(cluster), step(clusters), place_k(place_k_) {}

    /// Whether there is a tile, and which.
    __device__ __forceinline__ bool next(Tile& tile) {
        if (at >= args.tiles) return false;
        tile.index = kSplits ? args.splits.quotient(at) : at;
        tile.split = kSplits ? at - tile.index * int(args.splits.divisor) : place_k;
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
        if constexpr (kSplits || Config::kClusterK > 1) {
            // The first `k_stages % splits` slices are one stage longer.
            const int each = args.splits.quotient(args.k_stages);
            const int longer = args.k_stages - each * int(args.splits.divisor);
            tile.k = tile.split * each + min(tile.split, longer);
            tile.k_end = tile.k + each + (tile.split < longer ? 1 : 0);
        }
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
