// mbarrier: hands stages of the TMA ring over.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ void mbarrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to the async proxy and to the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
}

/// Arrives at the barrier that block `cta` of the cluster has at the same place.
///
/// Scope is the default (.cta) on purpose: what is handed over is a buffer that only the async proxy writes and
/// wgmma reads. Release and acquire at cluster scope would add a memory barrier and an L1 invalidation per stage.
__device__ __forceinline__ void mbarrier_arrive_remote(u64* barrier, u32 cta) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(smem_address(barrier)),
        "r"(cta)
        : "memory");
}

/// Whose writes a wait makes visible: those of the block, or of the cluster.
constexpr char kBlockScope[] = ".acquire.cta";
constexpr char kClusterScope[] = ".acquire.cluster";

/// Returns whether the phase of that parity is complete; may suspend the thread for a while before it answers.
template <const char* kScope = kBlockScope>
__device__ __forceinline__ bool mbarrier_try_wait_parity(u64* barrier, u32 parity) {
    u32 complete;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity%3.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(complete)
        : "r"(smem_address(barrier)), "r"(parity), "C"(kScope)
        : "memory");
    return complete != 0;
}

template <const char* kScope = kBlockScope>
__device__ __forceinline__ void mbarrier_wait(u64* barrier, u32 parity) {
    while (!mbarrier_try_wait_parity<kScope>(barrier, parity)) {
    }
}
