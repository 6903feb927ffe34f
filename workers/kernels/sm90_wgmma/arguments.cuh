// What a launch passes: mirrored byte for byte by `GemmArguments` in workers/cuda/families/sm90_wgmma.py.
#pragma once

#include "common/types.cuh"

/// Extents are the kernel's own: with swap_ab its M is the problem's N, and C is written transposed.
struct GemmArguments {
    void* c;
    const void* source;  // what beta multiplies: the shape and layout of C
    const void* bias;    // one element a column of the problem's C
    float* partials;     // split-K: [tile][slice][accumulators of the tile]
    u32* arrivals;       // split-K: one counter a tile and consumer warpgroup; 0 between launches
    u64 hint_a, hint_b;  // L2 cache policies of the loads
    long long ldc;       // elements from one row of the problem's C to the next
    long long batch_stride_c;
    int m, n, k, batch;
    int raster_along_n, raster_group;
    int splits;
    float alpha, beta;
    int padding;
};
