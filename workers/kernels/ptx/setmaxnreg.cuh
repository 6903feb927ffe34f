// setmaxnreg: moves registers between the warpgroups of a block.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#miscellaneous-instructions-setmaxnreg
#pragma once

#include "common/types.cuh"

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "24 to 256 in steps of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "24 to 256 in steps of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
