// cp.async: copies from global to shared memory that pass no register, in groups that a thread waits for.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async
#pragma once

#include "common/types.cuh"

/// Writes 16 bytes, past L1: the first `bytes` of them are copied, the rest are 0 and not read. L2 fetches at least
/// `kPrefetchBytes`: 0 is as many as needed.
template <int kPrefetchBytes>
__device__ __forceinline__ void cp_async_cg(u32 to, const void* from, u32 bytes) {
    static_assert(kPrefetchBytes == 0 || kPrefetchBytes == 128 || kPrefetchBytes == 256, "a prefetch size of L2");
    if constexpr (kPrefetchBytes == 256) {
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else if constexpr (kPrefetchBytes == 128) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
}

/// Writes `kBytes`, through L1: the first `bytes` of them are copied, the rest are 0 and not read.
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(u32 to, const void* from, u32 bytes) {
    static_assert(kBytes == 4 || kBytes == 8, "cp.async.cg copies 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
}

/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-commit-group
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` of this thread's groups are still on their way.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-wait-group
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
    static_assert(kPending >= 0, "a count of groups");
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
