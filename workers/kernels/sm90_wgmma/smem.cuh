// Shared memory of one block. Its size is held against the Python derivation by a static_assert in kernel.cuh.
#pragma once

#include "common/types.cuh"

enum class Epilogue { kDirect, kTma };

/// The C tile exists only where the epilogue stages through shared memory.
template <int kBytes>
struct alignas(1024) OutputTile {
    unsigned char bytes[kBytes];
    static constexpr int kSize = kBytes;
};
template <>
struct OutputTile<0> {
    static constexpr int kSize = 0;
};

/// Operand tiles start at multiples of 1,024 bytes: the 128-byte swizzle pattern repeats that often, and the
/// hardware applies it to absolute addresses. Within a stage an operand is cut along K into spans of its
/// swizzle; each span is [rows][swizzle bytes].
template <class Config>
struct SharedMemory : OutputTile<Config::kEpilogue == Epilogue::kTma ? Config::kTileM * Config::kTileN * 2 : 0> {
    struct alignas(1024) TileA {
        unsigned char bytes[Config::kTileM * Config::kTileK * 2];
    };
    struct alignas(1024) TileB {
        unsigned char bytes[Config::kTileN * Config::kTileK * 2];
    };
    TileA a[Config::kStages];
    TileB b[Config::kStages];
    u64 full[Config::kStages];
    u64 empty[Config::kStages];
};
