// mma.sync: a warp adds the product of a 16-row A and an 8-column B, 32 bytes of K deep, to its sums.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-mma
#pragma once

#include "common/types.cuh"

/// Dtypes of A and B.
enum class Input { kBf16, kFp16, kTf32, kFp8E4m3, kFp8E5m2, kInt8, kUint8 };

#define MMA_SYNC(name, sums, constraint, instruction)                                                                \
    __device__ __forceinline__ void name(sums (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                       \
        asm("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
            : constraint(d[0]), constraint(d[1]), constraint(d[2]), constraint(d[3])                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                     \
    }

MMA_SYNC(mma_m16n8k16_bf16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_SYNC(mma_m16n8k16_f16, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
MMA_SYNC(mma_m16n8k8_tf32, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
MMA_SYNC(mma_m16n8k32_e4m3_e4m3, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA_SYNC(mma_m16n8k32_e4m3_e5m2, float, "+f", "m16n8k32.row.col.f32.e4m3.e5m2.f32")
MMA_SYNC(mma_m16n8k32_e5m2_e4m3, float, "+f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")
MMA_SYNC(mma_m16n8k32_e5m2_e5m2, float, "+f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
MMA_SYNC(mma_m16n8k32_s8_s8, int, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
MMA_SYNC(mma_m16n8k32_s8_u8, int, "+r", "m16n8k32.row.col.s32.s8.u8.s32")
MMA_SYNC(mma_m16n8k32_u8_s8, int, "+r", "m16n8k32.row.col.s32.u8.s8.s32")
MMA_SYNC(mma_m16n8k32_u8_u8, int, "+r", "m16n8k32.row.col.s32.u8.u8.s32")

#define MMA_SYNC_F16(name, instruction)                                                                              \
    __device__ __forceinline__ void name(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2]) {                        \
        asm("mma.sync.aligned." instruction " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"                       \
            : "+r"(d[0]), "+r"(d[1])                                                                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                     \
    }

MMA_SYNC_F16(mma_m16n8k16_f16_f16, "m16n8k16.row.col.f16.f16.f16.f16")
MMA_SYNC_F16(mma_m16n8k32_e4m3_e4m3_f16, "m16n8k32.row.col.f16.e4m3.e4m3.f16")
MMA_SYNC_F16(mma_m16n8k32_e4m3_e5m2_f16, "m16n8k32.row.col.f16.e4m3.e5m2.f16")
MMA_SYNC_F16(mma_m16n8k32_e5m2_e4m3_f16, "m16n8k32.row.col.f16.e5m2.e4m3.f16")
MMA_SYNC_F16(mma_m16n8k32_e5m2_e5m2_f16, "m16n8k32.row.col.f16.e5m2.e5m2.f16")

#define MMA_SYNC_SCALED(name, types)                                                                                 \
    __device__ __forceinline__ void name(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 scale_a,           \
                                         u32 scale_b) {                                                              \
        asm("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32." types ".f32.ue8m0 "    \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, 0}, {%11}, {0, 0};"          \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                         \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a), "r"(scale_b));         \
    }

MMA_SYNC_SCALED(mma_m16n8k32_mxf8_e4m3_e4m3, "e4m3.e4m3")
MMA_SYNC_SCALED(mma_m16n8k32_mxf8_e4m3_e5m2, "e4m3.e5m2")
MMA_SYNC_SCALED(mma_m16n8k32_mxf8_e5m2_e4m3, "e5m2.e4m3")
MMA_SYNC_SCALED(mma_m16n8k32_mxf8_e5m2_e5m2, "e5m2.e5m2")

/// The instruction of these dtypes. Sums of integers wrap.
template <Input kA, Input kB, class Sums>
__device__ __forceinline__ void mma_sync(Sums (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (kA == Input::kBf16) mma_m16n8k16_bf16(d, a, b);
    else if constexpr (kA == Input::kFp16) mma_m16n8k16_f16(d, a, b);
    else if constexpr (kA == Input::kTf32) mma_m16n8k8_tf32(d, a, b);
    else if constexpr (kA == Input::kFp8E4m3 && kB == Input::kFp8E4m3) mma_m16n8k32_e4m3_e4m3(d, a, b);
    else if constexpr (kA == Input::kFp8E4m3) mma_m16n8k32_e4m3_e5m2(d, a, b);
    else if constexpr (kA == Input::kFp8E5m2 && kB == Input::kFp8E4m3) mma_m16n8k32_e5m2_e4m3(d, a, b);
    else if constexpr (kA == Input::kFp8E5m2) mma_m16n8k32_e5m2_e5m2(d, a, b);
    else if constexpr (kA == Input::kInt8 && kB == Input::kInt8) mma_m16n8k32_s8_s8(d, a, b);
    else if constexpr (kA == Input::kInt8) mma_m16n8k32_s8_u8(d, a, b);
    else if constexpr (kA == Input::kUint8 && kB == Input::kInt8) mma_m16n8k32_u8_s8(d, a, b);
    else mma_m16n8k32_u8_u8(d, a, b);
}

/// The instruction with f16 sums: `d[0]` packs two neighbours of a row, `d[1]` those eight rows below.
template <Input kA, Input kB>
__device__ __forceinline__ void mma_sync(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2]) {
    static_assert(kA == Input::kFp16 || kA == Input::kFp8E4m3 || kA == Input::kFp8E5m2, "only these have f16 sums");
    if constexpr (kA == Input::kFp16) mma_m16n8k16_f16_f16(d, a, b);
    else if constexpr (kA == Input::kFp8E4m3 && kB == Input::kFp8E4m3) mma_m16n8k32_e4m3_e4m3_f16(d, a, b);
    else if constexpr (kA == Input::kFp8E4m3) mma_m16n8k32_e4m3_e5m2_f16(d, a, b);
    else if constexpr (kB == Input::kFp8E4m3) mma_m16n8k32_e5m2_e4m3_f16(d, a, b);
    else mma_m16n8k32_e5m2_e5m2_f16(d, a, b);
}

/// The block-scaled instruction: rows of A and columns of B times powers of two, each 2^(byte - 127). Byte 0 of the
/// scales counts: lane 4r + h scales row r + 8h of A, lane 4c scales column c of B.
template <Input kA, Input kB>
__device__ __forceinline__ void mma_sync_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 scale_a,
                                                u32 scale_b) {
    static_assert(kA == Input::kFp8E4m3 || kA == Input::kFp8E5m2, "only fp8 is block-scaled");
    if constexpr (kA == Input::kFp8E4m3 && kB == Input::kFp8E4m3) mma_m16n8k32_mxf8_e4m3_e4m3(d, a, b, scale_a, scale_b);
    else if constexpr (kA == Input::kFp8E4m3) mma_m16n8k32_mxf8_e4m3_e5m2(d, a, b, scale_a, scale_b);
    else if constexpr (kB == Input::kFp8E4m3) mma_m16n8k32_mxf8_e5m2_e4m3(d, a, b, scale_a, scale_b);
    else mma_m16n8k32_mxf8_e5m2_e5m2(d, a, b, scale_a, scale_b);
}
