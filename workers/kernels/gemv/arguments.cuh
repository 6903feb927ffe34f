// What a launch passes: mirrored byte for byte by `GemvArguments` in workers/cuda/families/gemv.py.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/arguments.cuh"

/// Pieces are what one load brings: `Config::kLoadBytes` of a row.
struct GemvArguments {
    /// C and its epilogue as the other family has them. `hint_b` is the L2 policy of B, `k_stages` the pieces of a
    /// row, `tiles` those of all products and slices, `product` those of one product, `group` those of one slice of
    /// it: tiles of neighbouring columns follow one another, then slices, then products.
    GemmArguments to;
    const void* a;           // [batch][M][K], or [batch][K][M] where it is transposed
    const void* b;           // [batch][N][K]
    long long row_bytes;     // of a row of B, and of one of A that is not transposed
    long long batch_bytes_a;
    long long batch_bytes_b;
    int a_pitch;             // bytes of a row of A in shared memory
    int transposed;
    int prefetch_steps;      // steps of B that are asked into L2 before the kernels before have ended
    int padding;
};
