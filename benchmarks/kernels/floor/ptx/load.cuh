// Loads of data that is read once, without a policy for L2.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-ld-global-nc
#pragma once

__device__ __forceinline__ uint4 ld_global_nc_v4(const uint4* from) {
    uint4 got;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(from));
    return got;
}
