// The entry of programs that prefetch their first stages, for products with scales.
#pragma once

#include "sm90_wgmma/kernel.cuh"
#include "sm90_wgmma/prefetch.cuh"
#include "sm90_wgmma/scaled.cuh"

/// The ring itself prefetches nothing.
struct Unprefetched : Config {
    static constexpr int kPrefetchStages = 0;
};

template <>
struct Finish<Unprefetched> : ScaledFinish<Unprefetched> {
    using ScaledFinish<Unprefetched>::ScaledFinish;
};

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, const __grid_constant__ StreamedRows streamed,
         const __grid_constant__ ScaledArguments args) {
    extern __shared__ __align__(1024) unsigned char dynamic_smem[];
    RowPrefetch<Config>{args, streamed}.run();
    Gemm<Unprefetched>(*reinterpret_cast<SharedMemory<Unprefetched>*>(dynamic_smem), &map_a, &map_b, &map_c, args).run();
}
