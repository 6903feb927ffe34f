// Accumulators, and how they travel between blocks.
#pragma once

#include "common/types.cuh"

template <bool kIntegers>
struct AccumulatorOf {
    using Type = float;
};
template <>
struct AccumulatorOf<true> {
    using Type = int;
};
/// s32 for integer products, f32 otherwise.
template <class Config>
using Accumulator = typename AccumulatorOf<Config::kIntegers != 0>::Type;

/// A partial sum travels as 32 bits, whatever its type.
__device__ __forceinline__ u32 bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ u32 bits(int value) { return u32(value); }

template <class Number>
__device__ __forceinline__ Number number(u32 bits);
template <>
__device__ __forceinline__ float number<float>(u32 bits) {
    return __uint_as_float(bits);
}
template <>
__device__ __forceinline__ int number<int>(u32 bits) {
    return int(bits);
}

/// Packs four sums for the way.
template <class Acc>
__device__ __forceinline__ uint4 words_of(const Acc* four) {
    return make_uint4(bits(four[0]), bits(four[1]), bits(four[2]), bits(four[3]));
}
/// Adds four sums that have arrived.
template <class Acc>
__device__ __forceinline__ void add_words(Acc* four, const uint4& words) {
    four[0] += number<Acc>(words.x);
    four[1] += number<Acc>(words.y);
    four[2] += number<Acc>(words.z);
    four[3] += number<Acc>(words.w);
}
