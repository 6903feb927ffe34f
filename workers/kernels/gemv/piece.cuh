// Pieces: what one load brings of a row.
#pragma once

#include "common/types.cuh"
#include "ptx/convert.cuh"
#include "ptx/dot.cuh"
#include "ptx/stream.cuh"

enum class Input { kBf16, kFp16, kTf32, kFp8E4m3, kFp8E5m2, kInt8, kUint8 };

__host__ __device__ constexpr int input_bytes(Input input) {
    return input == Input::kTf32 ? 4 : input == Input::kBf16 || input == Input::kFp16 ? 2 : 1;
}

/// `kBytes` of a row, in the low bytes of whole registers; the other bytes are zero.
template <int kBytes>
struct Piece {
    static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4 || kBytes == 2 || kBytes == 1, "widths of a load");
    static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
    u32 words[kWords];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int w = 0; w < kWords; ++w) words[w] = 0;
    }

    /// From B, which is read once.
    template <int kPrefetchBytes>
    __device__ __forceinline__ void stream(const void* from, u64 policy) {
        if constexpr (kBytes == 16) ld_global_nc_v4<kPrefetchBytes>(words, from, policy);
        else if constexpr (kBytes == 8) ld_global_nc_v2<kPrefetchBytes>(words, from, policy);
        else if constexpr (kBytes == 4) ld_global_nc_u32<kPrefetchBytes>(words, from, policy);
        else if constexpr (kBytes == 2) ld_global_nc_u16<kPrefetchBytes>(words, from, policy);
        else ld_global_nc_u8<kPrefetchBytes>(words, from, policy);
    }

    /// From A, which every column reads again.
    __device__ __forceinline__ void load(const void* from) {
        if constexpr (kBytes == 16) {
            const uint4 four = *static_cast<const uint4*>(from);
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        } else if constexpr (kBytes == 8) {
            const uint2 two = *static_cast<const uint2*>(from);
            words[0] = two.x, words[1] = two.y;
        } else if constexpr (kBytes == 4) {
            words[0] = *static_cast<const u32*>(from);
        } else if constexpr (kBytes == 2) {
            words[0] = *static_cast<const u16*>(from);
        } else {
            words[0] = *static_cast<const unsigned char*>(from);
        }
    }

    __device__ __forceinline__ void store(void* to) const {
        if constexpr (kBytes == 16) *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
        else if constexpr (kBytes == 8) *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
        else if constexpr (kBytes == 4) *static_cast<u32*>(to) = words[0];
        else if constexpr (kBytes == 2) *static_cast<u16*>(to) = u16(words[0]);
        else *static_cast<unsigned char*>(to) = static_cast<unsigned char>(words[0]);
    }
};

/// Converts the elements of one word to f32, exactly.
template <Input kInput, int kCount>
__device__ __forceinline__ void unpack(u32 word, float (&values)[kCount]) {
    if constexpr (kInput == Input::kTf32) {
        values[0] = __uint_as_float(word);
    } else if constexpr (kInput == Input::kBf16) {
        values[0] = __uint_as_float(word << 16);
        if constexpr (kCount == 2) values[1] = __uint_as_float(word & 0xFFFF0000u);
    } else if constexpr (kInput == Input::kFp16) {
        values[0] = cvt_f32_f16(u16(word));
        if constexpr (kCount == 2) values[1] = cvt_f32_f16(u16(word >> 16));
    } else {
#pragma unroll
        for (int i = 0; i < kCount; i += 2) {
            const u16 two = u16(word >> 8 * i);
            const float2 pair = kInput == Input::kFp8E4m3 ? cvt_f32_e4m3x2(two) : cvt_f32_e5m2x2(two);
            values[i] = pair.x;
            if constexpr (kCount > 1) values[i + 1] = pair.y;
        }
    }
}
