// Prefetches of neighbouring bytes into L2, without a tensor map.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-prefetch
#pragma once

#include "common/types.cuh"

/// Prefetches `bytes` from `from` on into L2, both multiples of 16. `policy` is an L2 cache policy. Later writes of other
/// kernels are still seen.
__device__ __forceinline__ void bulk_prefetch_l2(const void* from, u32 bytes, u64 policy) {
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from), "r"(bytes), "l"(policy)
                 : "memory");
}
