// Stream-K: the tiles of a last wave that is not full are shared out. Each has an owner, who multiplies the first stages of
// its K; helpers have multiplied the others before. All leave their sums in the workspace, where the owner adds them up in
// the order of K, so that two runs give the same bits.
//
//   helper   ends of shared tiles: multiply → leave the sums;    then tiles of its own
//   owner    tiles of its own, then its shared tile: multiply → leave the sums → add up and write; then a last own one
//
// The last tile of its own comes last so that in ping-pong it is multiplied while the shared one is written. Owners wait
// for helpers: the launch is cooperative, so that the device runs all blocks at the same time.
#pragma once

#include "common/types.cuh"
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/partials.cuh"
#include "sm90_wgmma/schedule.cuh"

/// One consumer warpgroup's part of a shared tile. In the workspace a tile's slices follow one another, its owner's first,
/// and tiles too: a tile and a helper that have to do with one another count one more than the tile or the helper before.
template <class Config>
struct SharedPart {
    using S = Shape<Config>;
    static constexpr int kParts = S::kClusterSize * S::kTeam;  // of one tile
    static constexpr int kFloats = Partials<Config>::kFloats;

    int owner, first_helper, barrier;
    Partials<Config> partials;
    Meeting& meeting;

    __device__ __forceinline__ SharedPart(const GemmArguments& args, int owner_, int part, int barrier_)
        : owner(owner_),
          first_helper(args.shared.helper_of(owner, 0)),
          barrier(barrier_),
          partials{args.partials + ((2LL * owner + first_helper) * kParts + part) * kFloats, kParts * kFloats,
                   args.shared.helper_of(owner, args.shared.left.divisor - 1) - first_helper + 2},
          meeting(args.meetings[owner * kParts + part]) {}

    /// Leaves a helper's sums for the owner.
    __device__ __forceinline__ void leave(int helper, const typename Multiplier<Config>::Accumulators& d) const {
        partials.bring(1 + helper - first_helper, d);
        bar_sync(barrier, kWarpgroupSize);
        if (threadIdx.x % kWarpgroupSize == 0) atom_add_acq_rel(&meeting.arrived, 1);
    }

    /// Waits for the sums of all helpers and writes the tile; `row` and `column` are this warpgroup's first.
    __device__ __forceinline__ void write(const Finish<Config>& finish, int row, int column,
                                          const typename Multiplier<Config>::Accumulators& d) const {
        partials.bring(0, d);
        if (threadIdx.x % kWarpgroupSize == 0) {
            while (ld_acquire(&meeting.arrived) != u64(partials.slices - 1)) {
            }
            meeting.arrived = 0;
        }
        bar_sync(barrier, kWarpgroupSize);
        partials.write(finish, row, column, 0, 1);
    }
};
