// Conversions of f32. Pairs are packed with the first value in the low half.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u32 cvt_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ u32 cvt_f16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ u16 cvt_e4m3x2(float low, float high) {
    u16 packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ u16 cvt_e5m2x2(float low, float high) {
    u16 packed;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ u16 cvt_s8x2(float low, float high) {
    int first, second;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(first) : "f"(low));
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(second) : "f"(high));
    return u16((first & 0xFF) | (second & 0xFF) << 8);
}

__device__ __forceinline__ int cvt_s32(float value) {
    int rounded;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

/// Exact: a bf16 is the upper half of an f32.
__device__ __forceinline__ float cvt_f32(u16 bits) { return __uint_as_float(u32(bits) << 16); }

__device__ __forceinline__ float cvt_f32_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/// Two packed 8-bit floats, through f16, which holds every one of them.
__device__ __forceinline__ float2 cvt_f32_e4m3x2(u16 packed) {
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(packed));
    return make_float2(cvt_f32_f16(u16(halves)), cvt_f32_f16(u16(halves >> 16)));
}

__device__ __forceinline__ float2 cvt_f32_e5m2x2(u16 packed) {
    u32 halves;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(packed));
    return make_float2(cvt_f32_f16(u16(halves)), cvt_f32_f16(u16(halves >> 16)));
}
