// The fixed-name entry that the launcher looks up.
#pragma once

#include "sm90_wgmma/kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, const __grid_constant__ WgmmaArguments args) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    Gemm<Config>(*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), &map_a, &map_b, &map_c, args).run();
}
