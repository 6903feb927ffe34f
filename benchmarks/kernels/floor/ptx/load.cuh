// Loads of data that is read once, past L1.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-ld-global-nc
#pragma once

/// `policy` is an L2 cache policy.
__device__ __forceinline__ uint4 ld_global_nc_v4(const uint4* from, unsigned long long policy) {
    uint4 got;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(from), "l"(policy));
    return got;
}
