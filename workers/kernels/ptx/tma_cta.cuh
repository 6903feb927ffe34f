// TMA loads into the block's own shared memory. The form of tma.cuh may name that of another block of a cluster, for which
// ptxas makes a call on GeForce Blackwell, whose registers setmaxnreg then leaves alone.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk-tensor
#pragma once

#include "common/types.cuh"

/// Loads one box; its bytes are counted at `barrier`. `x` runs along the contiguous dimension, `policy` is an L2
/// cache policy.
__device__ __forceinline__ void tma_load_cta_3d(void* to, const CUtensorMap* map, u64* barrier, int x, int y, int z,
                                                u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(to)),
        "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}
