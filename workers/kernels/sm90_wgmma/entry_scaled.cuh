// The entry for products whose A and B have scales on the device: C = act(scales · A·B + bias).
//
// Programs without scales are made of entry.cuh, and know nothing of this file.
#pragma once

#include "sm90_wgmma/kernel.cuh"

/// Mirrored byte for byte by `ScaledArguments` in workers/cuda/families/sm90_wgmma.py.
struct ScaledArguments : WgmmaArguments {
    const float* scale_a;  // one number for the problem's A, or one for each of its rows
    const float* scale_b;  // one number for the problem's B, or one for each of its columns
};

/// What follows the scales is the epilogue of products without them.
struct Unscaled : Config {};

template <>
struct Finish<Config> : Finish<Unscaled> {
    const float *scale_a, *scale_b;
    float scale;  // of both operands, where each has one

    __device__ __forceinline__ Finish(const GemmArguments& args_, int batch_)
        : Finish<Unscaled>{args_, batch_},
          scale_a(static_cast<const ScaledArguments&>(args_).scale_a),
          scale_b(static_cast<const ScaledArguments&>(args_).scale_b),
          scale(Config::kScaledRowwise ? 1.0f : *scale_a * *scale_b) {}

    /// Elements (row, column) and (row, column + 1).
    __device__ __forceinline__ Pair pair(float low, float high, int row, int column) const {
        return Finish<Unscaled>::pair(low * scale_at(row, column), high * scale_at(row, column + 1), row, column);
    }

private:
    /// The previous kernel may write the scales while this one starts: they are read through L1 and L2, never by `ldg`.
    __device__ __forceinline__ float scale_at(int row, int column) const {
        if constexpr (!Config::kScaledRowwise) return scale;
        if (row >= args.m || column >= args.n) return 0.0f;
        return Config::kSwapAb ? scale_a[column] * scale_b[row] : scale_a[row] * scale_b[column];
    }
};

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, const __grid_constant__ ScaledArguments args) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    Gemm<Config>(*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), &map_a, &map_b, &map_c, args).run();
}
