// The entry of kernels that copy by TMA, in place of entry.cuh's.
#pragma once

#include "mma_sync/tma_kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ MmaSyncArguments args) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    TmaGemm<Config>{{*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), args}, &map_a, &map_b}.run();
}
