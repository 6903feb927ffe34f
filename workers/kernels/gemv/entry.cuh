// The fixed-name entry that the launcher looks up.
#pragma once

#include "gemv/kernel.cuh"

/// What the epilogue asks of a config's shape (sm90_wgmma/finish.cuh).
template <>
struct Shape<Config> {
    static constexpr int kOutputBytes = Config::kOutput == Output::kF32 || Config::kOutput == Output::kS32   ? 4
                                        : Config::kOutput == Output::kBf16 || Config::kOutput == Output::kFp16 ? 2
                                                                                                               : 1;
};

extern "C" __global__ void __launch_bounds__(Config::kWarps* kWarpSize, Config::kBlocksPerSm)
    gemv(const __grid_constant__ GemvArguments args) {
    extern __shared__ __align__(16) unsigned char dynamic_smem[];
    Gemv<Config>(dynamic_smem, args).run();
}
