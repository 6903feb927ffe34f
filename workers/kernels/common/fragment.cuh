// How accumulators lie over threads: what stores and partial sums need to know of a family's tensor-core instruction.
#pragma once

#include "common/types.cuh"

/// Each family that stores fragments defines this template with these members:
///
///   kThreads        threads that hold one part of a tile together
///   kBlocks         blocks of rows in a part, one accumulator array each
///   kBlockRows      rows of a block
///   kColumns        columns of a part, a multiple of 8
///   Block           Accumulator<Config>[4 * kColumns / 8]
///   Accumulators    Block[kBlocks]
///   thread()        this thread's index among the kThreads
///   warp_row()      the first of the 16 rows that this warp holds of a block
///
/// A warp holds 16 rows as m16n8 instructions and wgmma both leave them (PTX ISA, "Matrix Fragments for mma.m16n8k16"
/// and "Matrix Fragments for wgmma.mma_async.m64nNk16", D): for each group j of 8 columns, lane t has d[4j] and
/// d[4j+1] in row t/4, columns 8j + 2·(t%4) and the next; d[4j+2] and d[4j+3] lie eight rows below.
template <class Config>
struct Fragment;

/// This lane's first row in a block of rows.
template <class Config>
__device__ __forceinline__ int fragment_row() {
    return Fragment<Config>::warp_row() + threadIdx.x % kWarpSize / 4;
}
