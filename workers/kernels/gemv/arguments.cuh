// What a launch passes: mirrored byte for byte by `GemvArguments` in workers/cuda/families/gemv.py.
#pragma once

#include "common/arguments.cuh"
#include "common/divider.cuh"
#include "common/types.cuh"

/// A piece is what one load brings: `Config::kLoadBytes` of a row. Tiles of neighbouring columns follow one another, then
/// slices of K, then products.
struct GemvArguments : GemmArguments {
    int tiles;               // of all products and slices
    int pieces;              // of a row
    int a_pitch;             // bytes from one row of A to the next in shared memory
    int transposed;          // whether A lies as [batch][K][M]
    Divider splits;          // slices of K
    Divider product;         // tiles of one product, each slice counted
    Divider slice;           // tiles of one slice of a product
    int prefetch_steps;      // steps of B that L2 is asked for before earlier kernels have ended
    const void* a;           // [batch][M][K], or [batch][K][M] where it is transposed
    const void* b;           // [batch][N][K]
    long long row_bytes;     // of a row of B, and of one of A that is not transposed
    long long batch_bytes_a;
    long long batch_bytes_b;
};
