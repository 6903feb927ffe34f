// One wgmma a block, from a given image of shared memory, A by descriptor or from registers, D overwritten.
#pragma once

#include "common/types.cuh"
#include "layout_dump/image.cuh"
#include "layout_dump/ptx/wgmma_mma_async.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

/// `images` is [block][image_words]; the descriptors' start addresses count from the image's first byte.
/// `a` is [block][thread][4] where A comes from registers, else not read; `d` is [block][thread][kRegistersD].
extern "C" __global__ void __launch_bounds__(kWarpgroupSize, 1)
    dump_wgmma(const u32* images, int image_words, u64 descriptor_a, u64 descriptor_b, const u32* a, u32* d) {
    u32* const image = load_image(images + u64(blockIdx.x) * image_words, image_words);
    const int thread = blockIdx.x * kWarpgroupSize + threadIdx.x;
    u32 registers_a[4] = {};
    if constexpr (kAInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) registers_a[i] = a[thread * 4 + i];
    }
    fence_proxy_async();
    __syncthreads();
    const u64 start = (smem_address(image) & 0x3FFFF) >> 4;
    Accumulator accumulator[kRegistersD];
#pragma unroll
    for (int i = 0; i < kRegistersD; ++i) accumulator[i] = Accumulator(77);
    wgmma_fence();
    wgmma_mma_async(accumulator, descriptor_a + start, registers_a, descriptor_b + start);
    wgmma_commit_group();
    wgmma_wait_group<0>();
#pragma unroll
    for (int i = 0; i < kRegistersD; ++i) d[u64(thread) * kRegistersD + i] = bits_of(accumulator[i]);
}
