// Dynamic shared memory as an image of words: filled from and written to global memory by the whole block.
#pragma once

#include "common/types.cuh"

/// Begins where every swizzle pattern does.
__device__ __forceinline__ u32* shared_image() {
    extern __shared__ __align__(1024) u32 image[];
    return image;
}

__device__ __forceinline__ u32* load_image(const u32* from, int words) {
    u32* const image = shared_image();
    for (int i = threadIdx.x; i < words; i += blockDim.x) image[i] = from[i];
    return image;
}

__device__ __forceinline__ void store_image(u32* to, const u32* image, int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x) to[i] = image[i];
}
