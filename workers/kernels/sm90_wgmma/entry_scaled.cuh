// The entry for products whose A and B have scales on the device.
//
// Programs without scales are made of entry.cuh, and know nothing of this file.
#pragma once

#include "sm90_wgmma/kernel.cuh"
#include "sm90_wgmma/scaled.cuh"

template <>
struct Finish<Config> : ScaledFinish<Config> {
    using ScaledFinish<Config>::ScaledFinish;
};

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, const __grid_constant__ ScaledArguments args) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    Gemm<Config>(*reinterpret_cast<SharedMemory<Config>*>(dynamic_smem), &map_a, &map_b, &map_c, args).run();
}
