// What the wrappers of workers/kernels/ptx that `gemv` uses do, in plain C++. Formats are those of the verification.
#pragma once

#include "common/types.cuh"
#include "verify/elements.cuh"

inline u32 cvt_bf16x2(float low, float high) { return encode<8, 7, 0x7F7F>(low) | encode<8, 7, 0x7F7F>(high) << 16; }
inline u32 cvt_f16x2(float low, float high) { return encode<5, 10, 0x7BFF>(low) | encode<5, 10, 0x7BFF>(high) << 16; }
inline u16 cvt_e4m3x2(float low, float high) { return u16(encode<4, 3, 0x7E>(low) | encode<4, 3, 0x7E>(high) << 8); }
inline u16 cvt_e5m2x2(float low, float high) { return u16(encode<5, 2, 0x7B>(low) | encode<5, 2, 0x7B>(high) << 8); }
inline int saturated(float value) { return int(rintf(fminf(fmaxf(value, -128.0f), 127.0f))); }
inline u16 cvt_s8x2(float low, float high) { return u16((saturated(low) & 0xFF) | (saturated(high) & 0xFF) << 8); }
inline int cvt_s32(float value) { return int(rintf(value)); }
inline float cvt_f32(u16 bits) { return __uint_as_float(u32(bits) << 16); }
inline float cvt_f32_f16(u16 bits) { return decode<5, 10, true>(bits); }
inline float2 cvt_f32_e4m3x2(u16 two) { return {decode<4, 3, false>(two & 0xFF), decode<4, 3, false>(two >> 8)}; }
inline float2 cvt_f32_e5m2x2(u16 two) { return {decode<5, 2, true>(two & 0xFF), decode<5, 2, true>(two >> 8)}; }

template <bool kSignedA, bool kSignedB>
int dp4a(u32 a, u32 b, int sum) {
    for (int i = 0; i < 32; i += 8) {
        const int x = kSignedA ? int(static_cast<signed char>(a >> i)) : int(u8(a >> i));
        const int y = kSignedB ? int(static_cast<signed char>(b >> i)) : int(u8(b >> i));
        sum += x * y;
    }
    return sum;
}

/// A load that is not aligned as the hardware needs it ends the process.
template <int kBytes>
void loaded(u32* words, const void* from) {
    if (reinterpret_cast<u64>(from) % kBytes) std::abort();
    words[0] = 0;
    std::memcpy(words, from, kBytes);
}
template <int>
void ld_global_nc_v4(u32 (&words)[4], const void* from, u64) { loaded<16>(words, from); }
template <int>
void ld_global_nc_v2(u32 (&words)[2], const void* from, u64) { loaded<8>(words, from); }
template <int>
void ld_global_nc_u32(u32 (&words)[1], const void* from, u64) { loaded<4>(words, from); }
template <int>
void ld_global_nc_u16(u32 (&words)[1], const void* from, u64) { loaded<2>(words, from); }
template <int>
void ld_global_nc_u8(u32 (&words)[1], const void* from, u64) { loaded<1>(words, from); }

inline void prefetch_global_l2(const void*) {}
inline void griddepcontrol_wait() {}
inline void griddepcontrol_launch_dependents() {}
