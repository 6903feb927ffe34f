// Split-K: slices of one tile are summed by whoever finishes last, always in the order of the slices, so that the
// result does not depend on who that was.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "sm90_wgmma/multiply.cuh"

__device__ __forceinline__ u32 bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ u32 bits(int value) { return u32(value); }

template <class Number>
__device__ __forceinline__ Number number(u32 bits);
template <>
__device__ __forceinline__ float number<float>(u32 bits) {
    return __uint_as_float(bits);
}
template <>
__device__ __forceinline__ int number<int>(u32 bits) {
    return int(bits);
}

/// Brings one warpgroup's slice `d`; true for the last of the tile, which then has the whole sum in `sum`. They are
/// two arrays on purpose: were they one, the accumulators would move between registers inside the main loop.
///
/// `partials` is this warpgroup's place in the tile, slices `pitch` floats apart, in fragment order: 16 bytes a
/// thread, neighbours side by side.
template <class Config>
__device__ __forceinline__ bool gather_slices(float* partials, long long pitch, u32* arrivals, int split, int splits,
                                              int barrier, u32* last,
                                              const typename Multiplier<Config>::Accumulators& d,
                                              typename Multiplier<Config>::Accumulators& sum) {
    using Acc = Accumulator<Config>;
    constexpr int kAccumulators = Shape<Config>::kAccumulators;
    constexpr int kVectors = Shape<Config>::kBlocks * kAccumulators / 4;
    const int thread = threadIdx.x % kWarpgroupSize;
    auto* const mine = reinterpret_cast<uint4*>(partials + split * pitch) + thread;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const Acc* const four = d[4 * i / kAccumulators] + 4 * i % kAccumulators;
        __stcg(mine + i * kWarpgroupSize, make_uint4(bits(four[0]), bits(four[1]), bits(four[2]), bits(four[3])));
    }
    __threadfence();
    bar_sync(barrier, kWarpgroupSize);
    if (thread == 0) {
        const bool is_last = atomicAdd(arrivals, 1) + 1 == u32(splits);
        if (is_last) *arrivals = 0;
        *last = is_last;
        __threadfence();
    }
    bar_sync(barrier, kWarpgroupSize);
    if (!*last) return false;
    // A part at a time: as many loads under way as fit beside the sum.
    constexpr int kPart = 8;
#pragma unroll
    for (int begin = 0; begin < kVectors; begin += kPart) {
        Acc part[kPart][4] = {};
#pragma unroll 1
        for (int slice = 0; slice < splits; ++slice) {
            auto* const from = reinterpret_cast<const uint4*>(partials + slice * pitch) + thread;
#pragma unroll
            for (int i = 0; i < kPart; ++i) {
                if (begin + i >= kVectors) continue;
                const uint4 words = __ldcg(from + (begin + i) * kWarpgroupSize);
                part[i][0] += number<Acc>(words.x);
                part[i][1] += number<Acc>(words.y);
                part[i][2] += number<Acc>(words.z);
                part[i][3] += number<Acc>(words.w);
            }
        }
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
            if (begin + i >= kVectors) continue;
            const int first = 4 * (begin + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[first / kAccumulators][first % kAccumulators + j] = part[i][j];
        }
    }
    return true;
}
