// TMA: tiles between global and shared memory by descriptor.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-tensor
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads one box; its bytes are counted at `barrier`. `x` runs along the contiguous dimension, `policy` is an L2
/// cache policy.
__device__ __forceinline__ void tma_load_3d(void* to, const CUtensorMap* map, u64* barrier, int x, int y, int z,
                                            u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(to)),
        "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

/// Prefetches one box into L2, which all multiprocessors share: later writes are still seen.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-prefetch-tensor
__device__ __forceinline__ void tma_prefetch_3d(const CUtensorMap* map, int x, int y, int z, u64 policy) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile.L2::cache_hint [%0, {%1, %2, %3}], %4;" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

/// Loads one box into the same place of every block in `ctas`; each counts the bytes at its own barrier.
__device__ __forceinline__ void tma_load_3d_multicast(void* to, const CUtensorMap* map, u64* barrier, int x, int y,
                                                      int z, u16 ctas, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(smem_address(to)),
        "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(ctas), "l"(policy)
        : "memory");
}

/// Stores one box; what lies outside the tensor is not written.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap* map, const void* from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_address(from)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-commit-group
__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` groups of this thread still read their shared memory.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    static_assert(kPending >= 0, "a count of groups");
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Waits until at most `kPending` groups of this thread are still being written.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
    static_assert(kPending >= 0, "a count of groups");
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Orders generic-proxy writes to shared memory before later async-proxy reads of it.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-membar-fence
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
