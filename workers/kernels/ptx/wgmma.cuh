// wgmma: ordering, and the shared-memory matrix descriptor. The multiply itself is generated for the one N in
// use (`ptx/wgmma_mma_async.cuh`, made by workers/kernels/sm90_wgmma/mma_async.py).
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

/// Emits no instruction; ties one accumulator to its place in the program.
__device__ __forceinline__ void wgmma_settle(float& accumulator) { asm volatile("" : "+f"(accumulator)::"memory"); }
__device__ __forceinline__ void wgmma_settle(int& accumulator) { asm volatile("" : "+r"(accumulator)::"memory"); }

/// Descriptor of an operand tile in shared memory.
///
/// Fields, PTX ISA "Matrix Descriptor Format", each in units of 16 bytes: start address in bits 0-13, leading
/// byte offset in 16-29, stride byte offset in 32-45, swizzle mode in 62-63 (0 none, 1 128 B, 2 64 B, 3 32 B). The
/// base offset in 49-51 stays 0: every tile here starts at its swizzle pattern.
template <int kSwizzle>
__device__ __forceinline__ u64 wgmma_descriptor(u32 address, u32 leading_bytes, u32 stride_bytes) {
    static_assert(kSwizzle == 0 || kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128, "swizzle span in bytes");
    constexpr u64 kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3 : 0;
    return u64((address & 0x3FFFF) >> 4) | (u64(leading_bytes >> 4) << 16) | (u64(stride_bytes >> 4) << 32) |
           (kMode << 62);
}

/// The descriptor moved by `bytes` within the same tile. Shared-memory addresses never carry out of their field, so that
/// only the low word changes.
__device__ __forceinline__ u64 wgmma_advance(u64 descriptor, u32 bytes) {
    return (descriptor & 0xFFFFFFFF00000000) | (u32(descriptor) + (bytes >> 4));
}
