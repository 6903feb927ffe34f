// cp.async: copies from global to shared memory that pass no register, in groups that a thread waits for.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async
#pragma once

#include "common/types.cuh"

// A copy that is not wanted does nothing. One from outside the operand writes zeros and reads nothing. Both are
// predicates of the instruction: branches would keep the compiler from moving it between products, and a size in a
// register costs five more instructions.
#define CP_ASYNC(copy)                                                                                              \
    asm volatile("{ .reg .pred wanted, outside; setp.ne.s32 wanted, %2, 0; setp.eq.s32 outside, %3, 0;\n"           \
                 "  @wanted cp.async." copy ", outside; }" ::"r"(to), "l"(from), "r"(int(wanted)), "r"(int(inside)) \
                 : "memory")

/// Copies 16 bytes past L1. L2 fetches at least `kPrefetchBytes`: 0 is as many as needed.
template <int kPrefetchBytes>
__device__ __forceinline__ void cp_async_cg(u32 to, const void* from, bool wanted, bool inside) {
    static_assert(kPrefetchBytes == 0 || kPrefetchBytes == 128 || kPrefetchBytes == 256, "a prefetch size of L2");
    if constexpr (kPrefetchBytes == 256) CP_ASYNC("cg.shared.global.L2::256B [%0], [%1], 16");
    else if constexpr (kPrefetchBytes == 128) CP_ASYNC("cg.shared.global.L2::128B [%0], [%1], 16");
    else CP_ASYNC("cg.shared.global [%0], [%1], 16");
}

/// Copies the first `bytes` of 16, writes zeros behind them, and reads only what it copies.
__device__ __forceinline__ void cp_async_cg_first(u32 to, const void* from, bool wanted, u32 bytes) {
    asm volatile("{ .reg .pred wanted; setp.ne.s32 wanted, %2, 0;\n"
                 "  @wanted cp.async.cg.shared.global [%0], [%1], 16, %3; }" ::"r"(to), "l"(from), "r"(int(wanted)),
                 "r"(bytes)
                 : "memory");
}

/// Copies `kBytes` through L1.
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(u32 to, const void* from, bool wanted, bool inside) {
    static_assert(kBytes == 4 || kBytes == 8, "cp.async.cg copies 16 bytes");
    if constexpr (kBytes == 8) CP_ASYNC("ca.shared.global [%0], [%1], 8");
    else CP_ASYNC("ca.shared.global [%0], [%1], 4");
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
