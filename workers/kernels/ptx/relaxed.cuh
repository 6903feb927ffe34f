// Atomics and loads of one word that order nothing else. The whole GPU sees them.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-atom
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u32 atom_add_relaxed(u32* at, u32 addend) {
    u32 before;
    asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(addend) : "memory");
    return before;
}

__device__ __forceinline__ void red_add_relaxed(u32* at, u32 addend) {
    asm volatile("red.add.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(addend) : "memory");
}

__device__ __forceinline__ u32 ld_relaxed(const u32* at) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

__device__ __forceinline__ void st_relaxed(u32* at, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
