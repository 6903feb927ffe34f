// Clusters along K: each block multiplies a slice of one tile's K, and writes a share of the tile. What a share's owner
// lacks the others store into its shared memory as soon as they have it; it adds up in the order of the slices, so that
// two runs give the same bits.
//
//   send each block the sums of its share → all of mine there → add up and store
//
// Blocks of a cluster run at the same time, so that waiting for one another is safe. A block has a single tile: where
// sums arrive is written once.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "sm90_wgmma/epilogue.cuh"
#include "sm90_wgmma/multiply.cuh"
#include "sm90_wgmma/smem.cuh"

/// One consumer warpgroup's rows of a tile. Sums of a share lie in shared memory by slices, each in fragment order: 16
/// bytes a thread for each column group of an m64 block, neighbours side by side.
template <class Config>
struct ClusterSums {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    static constexpr int kSlices = Config::kClusterK;
    static constexpr int kGroups = S::kGroups, kShare = S::kShareGroups;
    static constexpr int kGroupBytes = kWarpgroupSize * 16;
    /// Column groups that are written together.
    static constexpr int kUnit = kShare % 4 == 0 && Config::kTileN % 32 == 0   ? 4
                                 : kShare % 2 == 0 && Config::kTileN % 16 == 0 ? 2
                                                                               : 1;
    using Unit = Acc[4 * kUnit];

    SharedMemory<Config>& smem;
    int consumer, rank;

    __device__ __forceinline__ ClusterSums(SharedMemory<Config>& smem_, int consumer_, int rank_)
        : smem(smem_), consumer(consumer_), rank(rank_) {}

    /// Column groups that this block writes: none where there are more blocks than groups.
    __device__ __forceinline__ int owned() const { return max(0, min(kShare, kGroups - rank * kShare)); }

    /// Readies the barrier at which what arrives is counted. One thread calls this, before the cluster meets.
    __device__ __forceinline__ void expect() const {
        mbarrier_init(&smem.gathered[consumer], 1);
        mbarrier_arrive_expect_tx(&smem.gathered[consumer], kSlices * owned() * kGroupBytes);
    }

    /// Sends every block the sums that it is to write, itself included.
    __device__ __forceinline__ void send(const typename Multiplier<Config>::Accumulators& d) const {
#pragma unroll
        for (int owner = 0; owner < kSlices; ++owner) {
            const u32 to = map_shared(smem_address(vectors(rank)), owner);
            const u32 counted = map_shared(smem_address(&smem.gathered[consumer]), owner);
#pragma unroll
            for (int i = 0; i < kShare && owner * kShare + i < kGroups; ++i) {
                constexpr int kAcross = Config::kTileN / 8;
                const int group = owner * kShare + i;
                st_async(to + i * kGroupBytes, words_of(d[group / kAcross] + 4 * (group % kAcross)), counted);
            }
        }
    }

    /// Waits for this block's share, adds it up and stores it; `row` and `column` are this warpgroup's first.
    __device__ __forceinline__ void write(const Finish<Config>& finish, int row, int column) const {
        constexpr int kUnitsAcross = Config::kTileN / (8 * kUnit);
        DirectStore<Config> store(finish);
        mbarrier_wait_cluster(&smem.gathered[consumer], 0);
        const int first = rank * kShare / kUnit;
#pragma unroll 1
        for (int i = 0; i < owned() / kUnit; ++i) {
            Unit sums;
            sum(i, sums);
            const int unit = first + i;
            store.template groups<kUnit>(row + unit / kUnitsAcross * kInstructionM,
                                         column + unit % kUnitsAcross * (8 * kUnit), sums);
        }
    }

private:
    __device__ __forceinline__ void sum(int unit, Unit& sums) const {
#pragma unroll
        for (int i = 0; i < 4 * kUnit; ++i) sums[i] = 0;
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
            const uint4* const from = vectors(slice) + unit * kUnit * kWarpgroupSize;
#pragma unroll
            for (int group = 0; group < kUnit; ++group) {
                add_words(sums + 4 * group, from[group * kWarpgroupSize]);
            }
        }
    }

    /// This thread's first 16 bytes of a slice's sums of this warpgroup's share.
    __device__ __forceinline__ uint4* vectors(int slice) const {
        return reinterpret_cast<uint4*>(smem.bytes + (consumer * kSlices + slice) * kShare * kGroupBytes) +
               threadIdx.x % kWarpgroupSize;
    }
};
