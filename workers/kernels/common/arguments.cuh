// What a launch passes to every GEMM kernel. A family adds its own fields in a struct that derives from this one.
#pragma once

#include "common/semaphore.cuh"
#include "common/types.cuh"

/// Mirrored byte for byte by `GemmArguments` in workers/cuda/families/arguments.py.
///
/// `m` and `n` are the kernel's own extents: with swap_ab, M is the problem's N, and C is written transposed.
struct GemmArguments {
    void* c;
    const void* source;      // what beta multiplies: the shape and layout of C
    const void* bias;        // one element per column of the problem's C
    float* partials;         // partial sums, in the order that the fix-up of the family expects
    Semaphore* semaphores;   // one per part of a tile
    u64 hint_a, hint_b;      // L2 cache policies of the loads
    long long ldc;           // elements from one row of the problem's C to the next
    long long batch_stride_c;
    int m, n;
    float alpha, beta;
};
