// The fixed-name entry that the launcher looks up.
#pragma once

#include "sm90_wgmma/kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, void* c, int m, int n, int k, long long ldc, int raster_along_n,
         int raster_group) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    const GemmArguments args{&map_a, &map_b, &map_c, static_cast<u16*>(c), m, n, k, ldc, raster_along_n, raster_group};
    Gemm<Config>(*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), args).run();
}
