// What a launch passes: mirrored byte for byte by `GemmArguments` in workers/cuda/families/sm90_wgmma.py.
#pragma once

#include "common/types.cuh"

/// Division by a number that the host knows: a multiplication and a shift, for dividends below 2^31.
struct Divider {
    u32 multiplier, shift, divisor;

    __device__ __forceinline__ int quotient(int dividend) const {
        return divisor == 1 ? dividend : int(__umulhi(u32(dividend), multiplier) >> shift);
    }
};

/// Where those meet that multiplied one warpgroup's part of a tile (split_k.cuh, stream_k.cuh); all 0 between launches.
struct Meeting {
    u64 arrived;   // low half: those that are there; high half: a bit for each that did not wait for the others
    u64 informed;  // slices that know that all are there
};

/// Stream-K: the tiles of a last wave that is not full. The clusters that have none of them multiply the last stages of
/// all of them before they begin with tiles of their own. `kept` 0: nothing is shared.
struct SharedTiles {
    int first;      // of these tiles; an owner each
    int owners;     // clusters, the first of the grid
    int kept;       // stages of a shared tile that its owner multiplies
    Divider left;   // stages of it that are left to helpers
    Divider piece;  // stages that a helper multiplies, of one tile after another

    /// Who multiplies stage `stage` of what an owner left.
    __device__ __forceinline__ int helper_of(int owner, int stage) const {
        return piece.quotient(owner * int(left.divisor) + stage);
    }
};

/// Extents are the kernel's own: with swap_ab its M is the problem's N, and C is written transposed.
struct GemmArguments {
    void* c;
    const void* source;  // what beta multiplies: the shape and layout of C
    const void* bias;    // one element a column of the problem's C
    float* partials;     // split-K: [part of a tile][slice][accumulators of the part]; stream-K: see stream_k.cuh
    Meeting* meetings;   // one a part of a tile, the rows that a consumer warpgroup owns of a block's tile
    u64 hint_a, hint_b;  // L2 cache policies of the loads
    long long ldc;       // elements from one row of the problem's C to the next
    long long batch_stride_c;
    int m, n;
    float alpha, beta;
    // The walk over cluster tiles (schedule.cuh). A group is so many tiles wide across the direction of the walk;
    // the last one may be narrower.
    int tiles;          // of all products, slices of K counted
    int k_stages;       // of a whole tile
    int along_n;        // groups are columns of tiles instead of rows
    int last_group;     // number of the last group
    Divider splits;     // slices of K, of blocks that meet in memory or of a cluster
    Divider product;    // tiles of one product
    Divider group;      // tiles of one group
    Divider width;      // tiles across a group
    Divider last_width; // tiles across the last group
    SharedTiles shared; // stream-K
};
