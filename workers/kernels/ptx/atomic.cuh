// Atomics and loads that order memory across the GPU: an acquire that reads a release sees everything that the releasing
// thread wrote before it, and everything that other threads wrote before a barrier they shared with that thread.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#memory-consistency-model
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u64 atom_add_acq_rel(u64* at, u64 addend) {
    u64 before;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(addend) : "memory");
    return before;
}

__device__ __forceinline__ u64 atom_cas_acq_rel(u64* at, u64 expected, u64 desired) {
    u64 before;
    asm volatile("atom.cas.acq_rel.gpu.global.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(at), "l"(expected), "l"(desired)
                 : "memory");
    return before;
}

__device__ __forceinline__ u64 ld_acquire(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
