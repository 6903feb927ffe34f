// The fixed-name entry that the launcher looks up.
#pragma once

#include "mma_sync/kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    gemm(const __grid_constant__ MmaSyncArguments args) {
    extern __shared__ __align__(128) unsigned char dynamic_smem[];
    MmaGemm<Config>{*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), args}.run();
}
