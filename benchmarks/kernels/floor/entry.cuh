// A kernel that reads A and B once, writes as many bytes as C has, and does nothing else: the least time of a launch that
// moves as much. Every thread keeps a few 16-byte loads in flight; sizes are multiples of 16.
#pragma once

#include "floor/ptx/load.cuh"

constexpr int kAhead = 8;  // loads of a thread in flight

struct Range {
    uint4* begin;
    long long bytes;
};

/// The first unit of 16 bytes of this thread, and how far apart its units are.
struct Stride {
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
};

__device__ __forceinline__ void read_all(Range range, Stride at, unsigned long long policy, uint4& mixed) {
    const long long count = range.bytes / 16;
    for (long long unit = at.first; unit < count; unit += kAhead * at.step) {
        uint4 got[kAhead] = {};
#pragma unroll
        for (int each = 0; each < kAhead; ++each) {
            if (unit + each * at.step < count) got[each] = ld_global_nc_v4(range.begin + unit + each * at.step, policy);
        }
#pragma unroll
        for (int each = 0; each < kAhead; ++each) {
            mixed.x ^= got[each].x, mixed.y ^= got[each].y, mixed.z ^= got[each].z, mixed.w ^= got[each].w;
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) move_bytes(Range a, Range b, Range c,
                                                                     unsigned long long policy) {
    const Stride at;
    uint4 mixed = {};
    read_all(b, at, policy, mixed);
    read_all(a, at, policy, mixed);
    for (long long unit = at.first; unit < c.bytes / 16; unit += at.step) c.begin[unit] = mixed;
}
