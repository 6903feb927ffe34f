// Loads of data that is read once: past L1, with a policy for L2. Prefetches into L2.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-ld-global-nc
#pragma once

#include "common/types.cuh"

/// kPrefetchBytes is the least that L2 fetches: 0 (as needed), 128 or 256.
#define LD_GLOBAL_NC(name, type, width, outputs, constraints)                                                          \
    template <int kPrefetchBytes>                                                                                      \
    __device__ __forceinline__ void name(type outputs, const void* from, u64 policy) {                                 \
        static_assert(kPrefetchBytes == 0 || kPrefetchBytes == 128 || kPrefetchBytes == 256, "a prefetch size of L2"); \
        if constexpr (kPrefetchBytes == 256) {                                                                         \
            asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B." width : constraints : "l"(from), "l"(policy)); \
        } else if constexpr (kPrefetchBytes == 128) {                                                                  \
            asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B." width : constraints : "l"(from), "l"(policy)); \
        } else {                                                                                                       \
            asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint." width : constraints : "l"(from), "l"(policy)); \
        }                                                                                                              \
    }

#define FOUR_WORDS "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
#define TWO_WORDS "=r"(words[0]), "=r"(words[1])

LD_GLOBAL_NC(ld_global_nc_v4, u32, "v4.u32 {%0, %1, %2, %3}, [%4], %5;", (&words)[4], FOUR_WORDS)
LD_GLOBAL_NC(ld_global_nc_v2, u32, "v2.u32 {%0, %1}, [%2], %3;", (&words)[2], TWO_WORDS)
LD_GLOBAL_NC(ld_global_nc_u32, u32, "u32 %0, [%1], %2;", (&words)[1], "=r"(words[0]))
LD_GLOBAL_NC(ld_global_nc_u16, u32, "u16 %0, [%1], %2;", (&words)[1], "=r"(words[0]))
LD_GLOBAL_NC(ld_global_nc_u8, u32, "u8 %0, [%1], %2;", (&words)[1], "=r"(words[0]))

/// Prefetches the line at `from` into L2. Later writes of other kernels are still seen.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-prefetch-prefetchu
__device__ __forceinline__ void prefetch_global_l2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
