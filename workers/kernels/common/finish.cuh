// The epilogue's arithmetic: act(alpha · A·B + beta · source + bias), converted to C's dtype.
#pragma once

#include "common/accumulator.cuh"
#include "common/arguments.cuh"
#include "common/types.cuh"
#include "ptx/convert.cuh"

enum class Output { kF32, kBf16, kFp16, kFp8E4m3, kFp8E5m2, kS32, kInt8 };
enum class Activation { kNone, kRelu, kGelu, kSilu };

__host__ __device__ constexpr int output_bytes(Output output) {
    return output == Output::kF32 || output == Output::kS32     ? 4
           : output == Output::kBf16 || output == Output::kFp16 ? 2
                                                                : 1;
}

/// Two neighbouring elements of a row of the kernel, as they lie in memory.
template <int kBytes>
struct PairOf;
template <>
struct PairOf<4> {
    using Type = uint2;
    using Element = u32;
};
template <>
struct PairOf<2> {
    using Type = u32;
    using Element = u16;
};
template <>
struct PairOf<1> {
    using Type = u16;
    using Element = unsigned char;
};

/// Rows and columns are the kernel's own; `at` is the index of an element in the problem's C.
template <class Config>
struct Finish {
    using Acc = Accumulator<Config>;
    using Pair = typename PairOf<output_bytes(Config::kOutput)>::Type;
    using Element = typename PairOf<output_bytes(Config::kOutput)>::Element;
    static constexpr bool kPlain =
        !Config::kAlpha && !Config::kBeta && !Config::kBias && Config::kActivation == Activation::kNone;

    const GemmArguments& args;
    int batch;

    __device__ __forceinline__ long long at(int row, int column) const {
        const long long place = Config::kSwapAb ? column * args.ldc + row : row * args.ldc + column;
        return batch * args.batch_stride_c + place;
    }

    /// Elements (row, column) and (row, column + 1).
    __device__ __forceinline__ Pair pair(Acc low, Acc high, int row, int column) const {
        if constexpr (kPlain && Config::kIntegers && Config::kOutput == Output::kS32) {
            return make_uint2(u32(low), u32(high));
        } else {
            return pack(value(float(low), row, column), value(float(high), row, column + 1));
        }
    }

private:
    __device__ __forceinline__ float value(float x, int row, int column) const {
        if constexpr (kPlain) return x;
        if constexpr (Config::kAlpha) x *= args.alpha;
        const bool inside = row < args.m && column < args.n;
        if constexpr (Config::kBeta) x += inside ? args.beta * element(args.source, at(row, column)) : 0.0f;
        if constexpr (Config::kBias) {
            const int place = Config::kSwapAb ? row : column;
            x += inside ? bias_element(place) : 0.0f;
        }
        return activated(x);
    }

    __device__ __forceinline__ static float activated(float x) {
        if constexpr (Config::kActivation == Activation::kRelu) return fmaxf(x, 0.0f);
        if constexpr (Config::kActivation == Activation::kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
        if constexpr (Config::kActivation == Activation::kSilu) return x / (1.0f + __expf(-x));
        return x;
    }

    __device__ __forceinline__ static float element(const void* from, long long place) {
        if constexpr (Config::kOutput == Output::kF32) return static_cast<const float*>(from)[place];
        if constexpr (Config::kOutput == Output::kS32) return float(static_cast<const int*>(from)[place]);
        if constexpr (Config::kOutput == Output::kBf16) return cvt_f32(static_cast<const u16*>(from)[place]);
        if constexpr (Config::kOutput == Output::kFp16) return cvt_f32_f16(static_cast<const u16*>(from)[place]);
        if constexpr (Config::kOutput == Output::kInt8) return float(static_cast<const signed char*>(from)[place]);
        const u16 bits = static_cast<const unsigned char*>(from)[place];
        return Config::kOutput == Output::kFp8E4m3 ? cvt_f32_e4m3x2(bits).x : cvt_f32_e5m2x2(bits).x;
    }

    /// The bias has C's dtype, or f32 where C is 8-bit or s32.
    __device__ __forceinline__ float bias_element(int place) const {
        if constexpr (Config::kOutput == Output::kBf16) return cvt_f32(static_cast<const u16*>(args.bias)[place]);
        if constexpr (Config::kOutput == Output::kFp16) return cvt_f32_f16(static_cast<const u16*>(args.bias)[place]);
        return static_cast<const float*>(args.bias)[place];
    }

    __device__ __forceinline__ static Pair pack(float low, float high) {
        if constexpr (Config::kOutput == Output::kBf16) return cvt_bf16x2(low, high);
        if constexpr (Config::kOutput == Output::kFp16) return cvt_f16x2(low, high);
        if constexpr (Config::kOutput == Output::kFp8E4m3) return cvt_e4m3x2(low, high);
        if constexpr (Config::kOutput == Output::kFp8E5m2) return cvt_e5m2x2(low, high);
        if constexpr (Config::kOutput == Output::kInt8) return cvt_s8x2(low, high);
        if constexpr (Config::kOutput == Output::kF32) return make_uint2(__float_as_uint(low), __float_as_uint(high));
        if constexpr (Config::kOutput == Output::kS32) return make_uint2(u32(cvt_s32(low)), u32(cvt_s32(high)));
    }
};
