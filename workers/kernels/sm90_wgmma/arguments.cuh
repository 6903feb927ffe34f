// What a launch passes: mirrored byte for byte by `WgmmaArguments` in workers/cuda/families/sm90_wgmma.py.
#pragma once

#include "common/arguments.cuh"
#include "common/divider.cuh"
#include "common/tile_grid.cuh"
#include "common/types.cuh"

/// Stream-K: the tiles of a last wave that is not full. Each has an owner, the cluster that writes it. Clusters that own
/// none of them are peers: before their own tiles they multiply the last stages of the shared ones.
struct SharedTiles {
    int first;      // of these tiles; one owner each
    int owners;     // clusters, the first of the grid
    int kept;       // stages of a shared tile that its owner multiplies; 0: no tile is shared
    Divider left;   // stages of it that are left to peers
    Divider piece;  // stages that a peer multiplies, of one tile after another

    /// The peer that multiplies stage `stage` of what an owner left.
    __device__ __forceinline__ int peer_of(int owner, int stage) const {
        return piece.quotient(owner * int(left.divisor) + stage);
    }
};

/// Semaphores and partial sums belong to parts of tiles: the rows that one consumer warpgroup owns of a block's tile.
/// Partial sums lie as [part][slice][accumulators of the part] with split-K, and as stream_k.cuh says with stream-K.
struct WgmmaArguments : GemmArguments {
    TileGrid grid;       // of cluster tiles; blocks exchange slices of K through memory or within a cluster
    SharedTiles shared;  // stream-K
};
