// wgmma: ordering, and the shared-memory matrix descriptor. The multiply itself is generated for the one N in
// use (`ptx/wgmma_mma_async.cuh`, made by workers/kernels/wgmma.py).
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
#pragma once

#include "common/types.cuh"

/// Orders register accesses between the warpgroup's own code and its `wgmma`s.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most `kPending` groups are still multiplying.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
    static_assert(kPending >= 0 && kPending <= 7, "a count of groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Descriptor of a K-major operand tile whose rows are `kSwizzle` bytes and swizzled over that span.
///
/// Fields, PTX ISA "Matrix Descriptor Format", each in units of 16 bytes: start address in bits 0-13, leading
/// byte offset in 16-29 (not read for swizzled K-major operands; 1 by convention), stride byte offset in 32-45
/// (from one group of 8 rows to the next), swizzle mode in 62-63.
template <int kSwizzle>
__device__ __forceinline__ u64 wgmma_descriptor(u32 address) {
    static_assert(kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128, "swizzle span in bytes");
    constexpr u64 kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
    constexpr u64 kStride = 8 * kSwizzle;
    return u64((address & 0x3FFFF) >> 4) | (u64(1) << 16) | ((kStride >> 4) << 32) | (kMode << 62);
}
