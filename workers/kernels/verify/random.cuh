// Operands: counter-based random numbers, the same for the same seed on every device.
#pragma once

#include "common/types.cuh"
#include "verify/elements.cuh"

/// A bijective mix of 64 bits whose output passes for random (the splitmix64 finaliser).
__device__ __forceinline__ u64 mix64(u64 x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__device__ __forceinline__ u64 random_bits(u64 seed, u64 counter) {
    return mix64(seed * 0x9E3779B97F4A7C15ull + counter + 1);
}

/// N(0, 1) by Box and Muller from the 64 random bits of one counter.
__device__ __forceinline__ float normal(u64 bits) {
    const float u = (float(u32(bits >> 40)) + 0.5f) * (1.0f / 16777216.0f);
    const float v = float(u32(bits) >> 8) * (1.0f / 16777216.0f);
    return sqrtf(-2.0f * __logf(u)) * __cosf(6.2831853f * v);
}

/// What operands hold: N(0, 1) for floats and the whole range for 8-bit integers; or, where sums must come out
/// exact however few bits they are kept in, -1, 0 and 1.
__device__ __forceinline__ float random_value(u64 bits, int element, bool units) {
    if (units) return float(int(bits >> 63)) - float(int(bits >> 62) & 1);
    switch (element) {
        case kInt8: return float(int(bits >> 56) - 128);
        case kUint8: return float(int(bits >> 56));
        case kS32: return float(int(bits >> 48) - 32768);
        default: return normal(bits);
    }
}
