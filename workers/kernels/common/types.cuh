// Scalar types and conversions that every kernel uses. No third-party headers.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

/// A TMA descriptor as the driver encodes it: opaque, 128 bytes, 64-byte aligned.
struct alignas(64) CUtensorMap_st {
    u64 opaque[16];
};
typedef struct CUtensorMap_st CUtensorMap;

constexpr int kWarpSize = 32;
constexpr int kWarpgroupSize = 128;

__host__ __device__ constexpr int ceil_div(int value, int by) { return (value + by - 1) / by; }
__host__ __device__ constexpr int round_up(int value, int to) { return ceil_div(value, to) * to; }

/// Address of a shared-memory object in the shared window, as PTX instructions take it.
__device__ __forceinline__ u32 smem_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}
