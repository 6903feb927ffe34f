// A word of shared memory.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-ld
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u32 ld_shared(u32 address) {
    u32 word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
