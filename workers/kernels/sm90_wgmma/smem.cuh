// Shared memory of one block. Its size is held against the Python derivation by a static_assert in kernel.cuh.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/shape.cuh"

/// The C tile, or sums of it: only where the epilogue stages through shared memory, or a cluster along K adds up.
template <int kBytes>
struct alignas(1024) OutputTile {
    unsigned char bytes[kBytes];
};
template <>
struct OutputTile<0> {};

/// Operand tiles start at multiples of 1,024 bytes: the 128-byte swizzle pattern repeats that often, and the
/// hardware applies it to absolute addresses. How a tile is laid out inside: `Operand` in shape.cuh.
template <class Config>
struct SharedMemory : OutputTile<Shape<Config>::kStagedBytes> {
    struct alignas(1024) TileA {
        unsigned char bytes[Shape<Config>::A::kTileBytes];
    };
    struct alignas(1024) TileB {
        unsigned char bytes[Shape<Config>::B::kTileBytes];
    };
    TileA a[Config::kStages];
    TileB b[Config::kStages];
    u64 full[Config::kStages];
    u64 empty[Config::kStages];
    /// A cluster along K: counts the sums of this block's share that have arrived, a consumer warpgroup each.
    u64 gathered[Config::kConsumerWarpgroups];
    /// Split-K: the slices whose shares of a tile a consumer warpgroup writes, a bit each.
    u32 shares[Config::kConsumerWarpgroups];
};
