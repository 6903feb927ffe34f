// Shared memory of one block. A static_assert in kernel.cuh compares its size with the Python derivation.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/shape.cuh"

/// The staged C tile, or the sums that a cluster along K exchanges; empty without either.
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
    /// A cluster along K: counts the bytes of this block's share that have arrived, one barrier per consumer warpgroup.
    u64 gathered[Config::kConsumerWarpgroups];
    /// Split-K: the slices whose shares each consumer warpgroup fixes up, a bit per slice.
    u32 shares[Config::kConsumerWarpgroups];
};
