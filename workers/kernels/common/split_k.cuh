// Split-K: the blocks that multiply slices of one tile's K exchange their sums through the workspace. The threads of a
// part store their sums, wait for those of the other slices, and fix up their share of the tile: sums are added in the
// order of the slices, so that two runs give the same bits.
//
//   store sums → arrive → all there → fix up units split, split + splits, …
//                       ↘ polled too often: withdraw, and leave the share to the slice that arrives last
//
// No slice waits for a block that may not be running yet: the last one to arrive depends on no other.
#pragma once

#include "common/arguments.cuh"
#include "common/partials.cuh"
#include "common/semaphore.cuh"
#include "common/types.cuh"
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"

/// Polls of the semaphore, each a trip to L2 of less than half a microsecond, before a slice withdraws.
constexpr int kMostPolls = 64;

/// One thread per slice calls this once the slice's sums are stored. Returns the slices whose shares it must fix up, a
/// bit each: its own; none after it withdrew; the last to arrive also takes those of all that withdrew.
__device__ __forceinline__ u32 claim_shares(Semaphore& semaphore, int split, int splits) {
    u64 seen = atom_add_acq_rel(&semaphore.arrived, 1) + 1;
    const bool last = u32(seen) == u32(splits);
    for (int polls = 0; u32(seen) != u32(splits); ++polls) {
        if (polls >= kMostPolls && atom_cas_acq_rel(&semaphore.arrived, seen, seen | 1ull << (32 + split)) == seen) return 0;
        seen = ld_acquire(&semaphore.arrived);
    }
    const u32 withdrawn = u32(seen >> 32);
    const u64 stayed = splits - __popc(withdrawn);
    // The last to see that all have arrived leaves the semaphore as it was.
    if (atom_add_acq_rel(&semaphore.acknowledged, 1) + 1 == stayed) semaphore.arrived = semaphore.acknowledged = 0;
    return 1u << split | (last ? withdrawn : 0);
}

/// One part of a tile, as one slice of K sees it. In the workspace the slices of a part follow one another.
template <class Config>
struct SplitK {
    static constexpr int kThreads = Fragment<Config>::kThreads;

    Partials<Config> partials;
    Semaphore& semaphore;
    int split;

    /// `part` counts the parts of all tiles.
    __device__ __forceinline__ SplitK(const GemmArguments& args, long long part, int split_, u32 splits)
        : partials(args.partials + part * splits * Partials<Config>::kFloats, Partials<Config>::kFloats, int(splits)),
          semaphore(args.semaphores[part]),
          split(split_) {}

    /// Stores the sums `d`, and returns to every thread what `claim_shares` says. `shares` is shared memory of this
    /// part, `barrier` its named barrier.
    __device__ __forceinline__ u32 store(int barrier, u32* shares, const typename Fragment<Config>::Accumulators& d) {
        partials.store(split, d);
        bar_sync(barrier, kThreads);
        if (Fragment<Config>::thread() == 0) *shares = claim_shares(semaphore, split, partials.slices);
        bar_sync(barrier, kThreads);
        return *shares;
    }

    /// Fixes up the shares of some slices; `row` and `column` are the part's first.
    __device__ __forceinline__ void fix_up(u32 shares, const Finish<Config>& finish, int row, int column) const {
        for (; shares != 0; shares &= shares - 1) {
            partials.fix_up(finish, row, column, __ffs(shares) - 1, partials.slices);
        }
    }
};
