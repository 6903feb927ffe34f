// The fixed-name entry that the launcher looks up.
#pragma once

#include "toy_simt/kernel.cuh"

extern "C" __global__ void __launch_bounds__(Config::kThreads)
    toy_simt(const __grid_constant__ ToyArguments args) {
    extern __shared__ float dynamic_smem[];
    Toy<Config>{dynamic_smem, args}.run();
}
