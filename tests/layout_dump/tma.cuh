// TMA boxes into shared memory, and the whole image out again.
#pragma once

#include "common/types.cuh"
#include "layout_dump/image.cuh"
#include "layout_dump/ptx/tma.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

struct Box {
    int x, y, offset;
};

/// `image` holds [words] on entry, and what shared memory holds after the boxes have arrived on return.
/// Behind the image, shared memory has room for one mbarrier.
extern "C" __global__ void __launch_bounds__(kWarpgroupSize)
    dump_tma(const __grid_constant__ CUtensorMap map, const Box* boxes, int count, u32 bytes, u32* image, int words) {
    u32* const smem = load_image(image, words);
    u64* const barrier = reinterpret_cast<u64*>(smem + round_up(words, 2));
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
    }
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(barrier, bytes);
        for (int i = 0; i < count; ++i) {
            tma_load_2d(reinterpret_cast<unsigned char*>(smem) + boxes[i].offset, &map, barrier, boxes[i].x, boxes[i].y);
        }
    }
    mbarrier_wait(barrier, 0);
    store_image(image, smem, words);
}
