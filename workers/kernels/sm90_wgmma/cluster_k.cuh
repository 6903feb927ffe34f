// Clusters along K: each block multiplies a slice of one tile's K, and writes a share of the tile. The others store what
// belongs to that share into its shared memory as soon as they have it; it adds the sums in the order of the slices, so
// that two runs give the same bits.
//
//   send each block the sums of its share → all of mine there → fix up
//
// Blocks of a cluster run at the same time, so that waiting for one another is safe. A block has a single tile: where
// sums arrive is written once.
#pragma once

#include "common/direct_store.cuh"
#include "common/partials.cuh"
#include "common/types.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "sm90_wgmma/shape.cuh"
#include "sm90_wgmma/smem.cuh"

/// One consumer warpgroup's rows of a tile, and the sums of its share in shared memory.
template <class Config>
struct ClusterK {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    static constexpr int kSlices = Config::kClusterK;
    static constexpr int kGroups = S::kGroups, kShare = S::kShareGroups;
    static constexpr int kGroupBytes = kWarpgroupSize * 16;
    /// Column groups that are written together.
    static constexpr int kUnit = kShare % 4 == 0 && Config::kTileN % 32 == 0   ? 4
                                 : kShare % 2 == 0 && Config::kTileN % 16 == 0 ? 2
                                                                               : 1;

    SharedMemory<Config>& smem;
    int consumer, rank;

    __device__ __forceinline__ ClusterK(SharedMemory<Config>& smem_, int consumer_, int rank_)
        : smem(smem_), consumer(consumer_), rank(rank_) {}

    /// Column groups that this block writes: none where there are more blocks than groups.
    __device__ __forceinline__ int owned() const { return max(0, min(kShare, kGroups - rank * kShare)); }

    /// Initialises the barrier that counts what arrives. One thread calls this, before the cluster synchronises.
    __device__ __forceinline__ void expect() const {
        mbarrier_init(&smem.gathered[consumer], 1);
        mbarrier_arrive_expect_tx(&smem.gathered[consumer], kSlices * owned() * kGroupBytes);
    }

    /// Sends every block the sums that it writes, itself included.
    __device__ __forceinline__ void send(const typename Fragment<Config>::Accumulators& d) const {
#pragma unroll
        for (int owner = 0; owner < kSlices; ++owner) {
            const u32 to = map_shared(smem_address(sums().at(rank, 0)), owner);
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
    __device__ __forceinline__ void fix_up(const Finish<Config>& finish, int row, int column) const {
        DirectStore<Config> store(finish);
        mbarrier_wait<kClusterScope>(&smem.gathered[consumer], 0);
        const int first = rank * kShare / kUnit;
#pragma unroll 1
        for (int i = 0; i < owned() / kUnit; ++i) {
            Acc whole[4 * kUnit];
            sums().template add_up<kUnit, kSlices>(kSlices, i * kUnit, whole, [](const uint4* from) { return *from; });
            store.template unit<kUnit>(row, column, first + i, whole);
        }
    }

private:
    /// The sums of this warpgroup's share of the tile.
    __device__ __forceinline__ PartialSums<Config, int> sums() const {
        return {reinterpret_cast<uint4*>(smem.bytes + consumer * kSlices * kShare * kGroupBytes), kShare * kWarpgroupSize};
    }
};
