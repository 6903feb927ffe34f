// Split-K: the blocks that multiplied slices of one tile's K meet in the workspace. Each warpgroup brings its sums,
// waits for those of the other slices, and writes its share of the tile: sums are added in the order of the slices,
// so that two runs give the same bits.
//
//   bring sums → arrive → all there → add up and store units split, split + splits, …
//                       ↘ out of patience: withdraw, and leave the share to whoever arrives last
//
// Nobody waits for ever for a block that may not be running yet: the last to arrive depends on no one.
#pragma once

#include "common/types.cuh"
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/partials.cuh"

/// Looks at the counter, each a trip to L2 of less than half a microsecond, before a slice withdraws.
constexpr int kPatience = 64;

/// What one thread of each slice does at a `Meeting`. Returns the slices whose shares are this one's to write, a bit
/// each: its own; none after it withdrew; for the last to come also those of all that withdrew.
__device__ __forceinline__ u32 attend(Meeting& meeting, int split, int splits) {
    u64 seen = atom_add_acq_rel(&meeting.arrived, 1) + 1;
    const bool last = u32(seen) == u32(splits);
    for (int looks = 0; u32(seen) != u32(splits); ++looks) {
        if (looks >= kPatience && atom_cas_acq_rel(&meeting.arrived, seen, seen | 1ull << (32 + split)) == seen) return 0;
        seen = ld_acquire(&meeting.arrived);
    }
    const u32 withdrawn = u32(seen >> 32);
    const u64 stayed = splits - __popc(withdrawn);
    // Whoever learns last that all are there leaves the meeting as it was found.
    if (atom_add_acq_rel(&meeting.informed, 1) + 1 == stayed) meeting.arrived = meeting.informed = 0;
    return 1u << split | (last ? withdrawn : 0);
}

/// One consumer warpgroup's slice of its rows of a tile. In the workspace the slices of a part follow one another.
template <class Config>
struct Slice {
    Partials<Config> partials;
    Meeting& meeting;
    int split;

    /// `part` counts the warpgroups' parts of all tiles.
    __device__ __forceinline__ Slice(const GemmArguments& args, long long part, int split_)
        : partials{args.partials + part * args.splits.divisor * Partials<Config>::kFloats, Partials<Config>::kFloats,
                   int(args.splits.divisor)},
          meeting(args.meetings[part]),
          split(split_) {}

    /// Brings the sums `d`, and hands every thread what `attend` says.
    __device__ __forceinline__ u32 meet(int barrier, u32* shares, const typename Multiplier<Config>::Accumulators& d) {
        partials.bring(split, d);
        bar_sync(barrier, kWarpgroupSize);
        if (threadIdx.x % kWarpgroupSize == 0) *shares = attend(meeting, split, partials.slices);
        bar_sync(barrier, kWarpgroupSize);
        return *shares;
    }

    /// Adds up and stores the units of some slices; `row` and `column` are this warpgroup's first.
    __device__ __forceinline__ void write(u32 shares, const Finish<Config>& finish, int row, int column) const {
        for (; shares != 0; shares &= shares - 1) {
            partials.write(finish, row, column, __ffs(shares) - 1, partials.slices);
        }
    }
};
