// The entry that runs before `gemm` where an operand must be packed first; part of a program only then.
#pragma once

#include "common/pack.cuh"

extern "C" __global__ void __launch_bounds__(kPackThreads) pack(const __grid_constant__ PackJob first,
                                                                const __grid_constant__ PackJob second) {
    if (first.to != nullptr) {
        if (first.transposed) pack_columns<Config::kElementBytes>(first);
        else pack_rows<Config::kElementBytes>(first);
    }
    if (second.to != nullptr) {
        if (second.transposed) pack_columns<Config::kElementBytes>(second);
        else pack_rows<Config::kElementBytes>(second);
    }
}
