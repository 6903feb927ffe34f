// Operands: counter-based normal numbers, the same for the same seed on every device.
#pragma once

#include "common/types.cuh"
#include "ptx/convert.cuh"

/// A bijective mix of 64 bits whose output passes for random (the splitmix64 finaliser).
__device__ __forceinline__ u64 mix64(u64 x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/// N(0, 1) by Box and Muller from the 64 random bits of one counter.
__device__ __forceinline__ float normal(u64 seed, u64 counter) {
    const u64 bits = mix64(seed * 0x9E3779B97F4A7C15ull + counter + 1);
    const float u = (float(u32(bits >> 40)) + 0.5f) * (1.0f / 16777216.0f);
    const float v = float(u32(bits) >> 8) * (1.0f / 16777216.0f);
    return sqrtf(-2.0f * __logf(u)) * __cosf(6.2831853f * v);
}
