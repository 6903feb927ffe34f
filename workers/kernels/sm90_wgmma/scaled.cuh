// Products whose A and B have scales on the device: C = act(scales · A·B + bias).
#pragma once

#include "common/finish.cuh"
#include "sm90_wgmma/arguments.cuh"

/// Mirrored byte for byte by `ScaledArguments` in workers/cuda/families/sm90_wgmma.py.
struct ScaledArguments : WgmmaArguments {
    const float* scale_a;  // one number for the problem's A, or one for each of its rows
    const float* scale_b;  // one number for the problem's B, or one for each of its columns
};

/// What follows the scales is the epilogue of products without them.
template <class Config>
struct Unscaled : Config {};

/// An entry makes it the `Finish` of its config.
template <class Config>
struct ScaledFinish : Finish<Unscaled<Config>> {
    using Plain = Finish<Unscaled<Config>>;
    const float *scale_a, *scale_b;
    float scale;  // of both operands, where each has one

    __device__ __forceinline__ ScaledFinish(const GemmArguments& args_, int batch_)
        : Plain{args_, batch_},
          scale_a(static_cast<const ScaledArguments&>(args_).scale_a),
          scale_b(static_cast<const ScaledArguments&>(args_).scale_b),
          scale(Config::kScaledRowwise ? 1.0f : *scale_a * *scale_b) {}

    /// Elements (row, column) and (row, column + 1).
    __device__ __forceinline__ typename Plain::Pair pair(float low, float high, int row, int column) const {
        return Plain::pair(low * scale_at(row, column), high * scale_at(row, column + 1), row, column);
    }

private:
    /// The previous kernel may write the scales while this one starts: they are read through L1 and L2, never by `ldg`.
    __device__ __forceinline__ float scale_at(int row, int column) const {
        if constexpr (!Config::kScaledRowwise) return scale;
        if (row >= this->args.m || column >= this->args.n) return 0.0f;
        return Config::kSwapAb ? scale_a[column] * scale_b[row] : scale_a[row] * scale_b[column];
    }
};
