// One two-dimensional TMA load, without hints.
#pragma once

#include "common/types.cuh"

/// Its bytes are counted at `barrier`; `x` runs along the contiguous dimension.
/// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-tensor
__device__ __forceinline__ void tma_load_2d(void* to, const CUtensorMap* map, u64* barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(smem_address(to)),
        "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y)
        : "memory");
}
