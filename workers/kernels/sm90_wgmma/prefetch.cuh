// The first stages of the weights, on their way to L2 before the ring asks for them.
//
// A block's first TMA load leaves a thousand clocks after the block has started, behind barriers, descriptors and the walk,
// and takes longer than a load without a descriptor. Meanwhile memory is idle. Warps that have nothing to do yet fill that
// time: they ask L2 for the rows of the first stages.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk_prefetch.cuh"
#include "ptx/stream.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/load.cuh"
#include "sm90_wgmma/schedule.cuh"
#include "sm90_wgmma/shape.cuh"

/// The operand with more rows, K-major, as it lies in memory. Mirrored byte for byte by `StreamedRows` in
/// workers/cuda/families/sm90_wgmma.py.
struct StreamedRows {
    const char* first;
    long long pitch_bytes, batch_bytes;  // from row to row, from matrix to matrix
    int rows, row_bytes;
    int is_a;  // whether it is the kernel's A
};

template <class Config>
struct RowPrefetch {
    using S = Shape<Config>;
    static constexpr int kStageBytes = Config::kTileK * Config::kElementBytes;  // of one row
    static constexpr int kLineBytes = 128;
    /// Every thread but those of the first warp, which sets up the ring; of a block with a producer, only its own. Consumers
    /// that load have little time: they ask for lines side by side. A bulk instruction makes the lanes of a warp take turns.
    static constexpr int kThreads = (S::kSpecialised ? kWarpgroupSize : Config::kThreads) - kWarpSize;

    const WgmmaArguments& args;
    const StreamedRows& from;

    /// Prefetches this block's share of the first `kPrefetchStages` stages of its first tile. Earlier kernels may still be
    /// running.
    __device__ __forceinline__ void run() const {
        const int thread = int(threadIdx.x) - kWarpSize;
        if (thread < 0 || thread >= kThreads) return;
        const ClusterPlace<Config> place(S::kClusterSize == 1 ? 0 : int(cluster_ctarank()));
        Tile tile;
        TileWalk<Config> walk(args, blockIdx.x / S::kClusterSize, gridDim.x / S::kClusterSize, place.k);
        if (!walk.next(tile)) return;
        const int row_a = (tile.m * Config::kClusterM + place.m) * Config::kTileM + place.n * S::A::kSlice;
        const int row_b = (tile.n * Config::kClusterN + place.n) * Config::kTileN + place.m * S::B::kSlice;
        const int row = from.is_a ? row_a : row_b;
        const int rows = min(from.is_a ? S::A::kSlice : S::B::kSlice, from.rows - row);
        const int begin = tile.k * kStageBytes;
        const int bytes = min(min(Config::kPrefetchStages, tile.k_end - tile.k) * kStageBytes, from.row_bytes - begin) & -16;
        const char* const at = from.first + tile.batch * from.batch_bytes + row * from.pitch_bytes + begin;
        if constexpr (S::kSpecialised) {
            const u64 policy = from.is_a ? args.hint_a : args.hint_b;
            for (int i = thread; i < rows; i += kThreads) bulk_prefetch_l2(at + i * from.pitch_bytes, bytes, policy);
        } else {
            constexpr int kLines = Config::kPrefetchStages * kStageBytes / kLineBytes;
            for (int i = thread; i < rows * kLines; i += kThreads) {
                const int offset = i % kLines * kLineBytes;
                if (offset < bytes) prefetch_global_l2(at + i / kLines * from.pitch_bytes + offset);
            }
        }
    }
};
