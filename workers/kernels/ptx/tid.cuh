// %tid, read where it stands: the compiler keeps threadIdx in a register from the first read to the last.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers-tid
#pragma once

__device__ __forceinline__ int tid_x() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
