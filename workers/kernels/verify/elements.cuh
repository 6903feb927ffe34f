// Elements of every dtype as numbers: decoded and encoded by integer arithmetic of our own, so that the reference
// shares no conversion with the kernels that it judges.
//
// Formats: IEEE 754 binary16 and bfloat16; e5m2 and e4m3 as in "OCP 8-bit Floating Point Specification": e5m2 has
// infinities and NaNs as IEEE has, e4m3 has no infinity and one NaN, all ones.
#pragma once

#include "common/types.cuh"

using u8 = unsigned char;

/// The numbers are those of `ELEMENTS` in workers/cuda/toolbox.py.
enum Element { kBf16, kFp16, kTf32, kF32, kFp8E4m3, kFp8E5m2, kInt8, kUint8, kS32 };

template <int kExponentBits, int kMantissaBits, bool kInfinities>
__device__ __forceinline__ float decode(u32 code) {
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    constexpr u32 kTopExponent = (1u << kExponentBits) - 1, kMantissaMask = (1u << kMantissaBits) - 1;
    const u32 exponent = (code >> kMantissaBits) & kTopExponent;
    const u32 mantissa = code & kMantissaMask;
    const u32 sign = ((code >> (kExponentBits + kMantissaBits)) & 1) << 31;
    u32 bits = ((exponent + 127 - kBias) << 23) | (mantissa << (23 - kMantissaBits));
    if (exponent == 0) bits = __float_as_uint(float(mantissa) * __uint_as_float(u32(128 - kBias - kMantissaBits) << 23));
    if (kInfinities && exponent == kTopExponent) bits = 0x7F800000u | (mantissa << (23 - kMantissaBits));
    if (!kInfinities && exponent == kTopExponent && mantissa == kMantissaMask) bits = 0x7FFFFFFFu;
    return __uint_as_float(bits | sign);
}

/// Rounds to nearest even; what is larger than `kMost` becomes it.
template <int kExponentBits, int kMantissaBits, u32 kMost>
__device__ __forceinline__ u32 encode(float value) {
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    const u32 bits = __float_as_uint(value);
    const int exponent = max(int((bits >> 23) & 0xFF) - 127, 1 - kBias);
    // The significand as a whole number, at most 2^(mantissa + 1); its carry runs into the exponent field.
    const u32 significand = u32(rintf(ldexpf(fabsf(value), kMantissaBits - exponent)));
    const u32 code = (u32(exponent + kBias - 1) << kMantissaBits) + significand;
    return min(code, kMost) | ((bits >> 31) << (kExponentBits + kMantissaBits));
}

/// An f32 in memory holds more bits than tf32 has: those of the fraction's last 13 that are below half of tf32's last place
/// are random, as a program's are, and no number that a kernel must see. Whether it cuts them off, as the tensor core
/// does, or rounds to nearest, it gets the same tf32.
constexpr u32 kTf32Half = 1u << 12, kTf32Mask = ~0x1FFFu;

/// Element `index` of an array of `element`s.
__device__ __forceinline__ double load_element(const void* from, u64 index, int element) {
    switch (element) {
        case kBf16: return __uint_as_float(u32(static_cast<const u16*>(from)[index]) << 16);
        case kFp16: return decode<5, 10, true>(static_cast<const u16*>(from)[index]);
        case kFp8E4m3: return decode<4, 3, false>(static_cast<const u8*>(from)[index]);
        case kFp8E5m2: return decode<5, 2, true>(static_cast<const u8*>(from)[index]);
        case kInt8: return static_cast<const signed char*>(from)[index];
        case kUint8: return static_cast<const u8*>(from)[index];
        case kS32: return static_cast<const int*>(from)[index];
        case kTf32: return __uint_as_float(static_cast<const u32*>(from)[index] & kTf32Mask);
        default: return static_cast<const float*>(from)[index];
    }
}

/// Writes a number, rounded to the element's format.
__device__ __forceinline__ void store_element(void* to, u64 index, int element, float value) {
    switch (element) {
        case kBf16: static_cast<u16*>(to)[index] = u16(encode<8, 7, 0x7F7F>(value)); break;
        case kFp16: static_cast<u16*>(to)[index] = u16(encode<5, 10, 0x7BFF>(value)); break;
        case kTf32: static_cast<u32*>(to)[index] = __float_as_uint(value) & ~kTf32Half; break;
        case kFp8E4m3: static_cast<u8*>(to)[index] = u8(encode<4, 3, 0x7E>(value)); break;
        case kFp8E5m2: static_cast<u8*>(to)[index] = u8(encode<5, 2, 0x7B>(value)); break;
        case kInt8: static_cast<signed char*>(to)[index] = static_cast<signed char>(int(rintf(value))); break;
        case kUint8: static_cast<u8*>(to)[index] = u8(int(rintf(value))); break;
        case kS32: static_cast<int*>(to)[index] = int(rintf(value)); break;
        default: static_cast<float*>(to)[index] = value;
    }
}

__device__ __forceinline__ int element_bytes(int element) {
    return element == kBf16 || element == kFp16 ? 2 : element == kTf32 || element == kF32 || element == kS32 ? 4 : 1;
}
