// The fixed-name entry that the launcher looks up.
#pragma once

#include "gemv/kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kWarps* kWarpSize, Config::kBlocksPerSm)
    gemv(const __grid_constant__ GemvArguments args) {
    extern __shared__ __align__(16) unsigned char dynamic_smem[];
    Gemv<Config>(dynamic_smem, args).run();
}
