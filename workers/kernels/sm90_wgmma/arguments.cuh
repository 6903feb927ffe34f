// What a launch passes: mirrored byte for byte by `WgmmaArguments` in workers/cuda/families/sm90_wgmma.py.
#pragma once

#include "common/arguments.cuh"
#include "common/divider.cuh"
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
    // The persistent walk over cluster tiles (schedule.cuh). A group spans several tiles across the direction of the
    // walk; the last one may be narrower.
    int tiles;           // of all products, each slice of K counted
    int k_stages;        // of a whole tile
    int along_n;         // groups are columns of tiles instead of rows
    int last_group;      // number of the last group
    Divider splits;      // slices of K, for blocks that exchange sums through memory or within a cluster
    Divider product;     // tiles of one product
    Divider group;       // tiles of one group
    Divider width;       // tiles across a group
    Divider last_width;  // tiles across the last group
    SharedTiles shared;  // stream-K
};
