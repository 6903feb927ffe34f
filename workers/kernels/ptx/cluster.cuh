// Other blocks' shared memory, from inside a cluster.
#pragma once

#include "common/types.cuh"

/// The address that a place in this block's shared memory has in block `cta` of the cluster.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-mapa
__device__ __forceinline__ u32 map_shared(u32 address, u32 cta) {
    u32 mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta));
    return mapped;
}

/// Stores 16 bytes in a block of the cluster, and counts them at an mbarrier of that block once they are there. Both
/// addresses are of `map_shared`.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-st-async
__device__ __forceinline__ void st_async(u32 address, const uint4& words, u32 mbarrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(mbarrier)
        : "memory");
}
