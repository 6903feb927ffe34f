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
#include "sm90_wgmma/epilogue.cuh"
#include "sm90_wgmma/multiply.cuh"

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

/// One consumer warpgroup's slice of its rows of a tile. In the workspace a slice's sums lie in fragment order, 16
/// bytes a thread, neighbours side by side.
template <class Config>
struct Slice {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    static constexpr int kGroups = Config::kTileN / 8;
    /// Column groups of one m64 block that are written together: four make whole sectors of C.
    static constexpr int kUnitGroups = Config::kSwapAb || kGroups % 2 ? 1 : kGroups % 4 ? 2 : 4;
    static constexpr int kBlockUnits = kGroups / kUnitGroups;
    static constexpr int kUnits = S::kBlocks * kBlockUnits;
    static constexpr int kFloats = kWarpgroupSize * S::kBlocks * S::kAccumulators;
    /// Slices whose sums are asked for together: each such round is a trip to L2.
    static constexpr int kSlicesAhead = kUnitGroups == 4 ? 2 : kUnitGroups == 2 ? 4 : 16;
    using Unit = Acc[4 * kUnitGroups];

    float* partials;  // of slice 0
    Meeting& meeting;
    int split, splits;

    /// `part` counts the warpgroups' parts of all tiles.
    __device__ __forceinline__ Slice(const GemmArguments& args, long long part, int split_)
        : partials(args.partials + part * args.splits.divisor * kFloats),
          meeting(args.meetings[part]),
          split(split_),
          splits(args.splits.divisor) {}

    /// Brings the sums `d`, and hands every thread what `attend` says.
    __device__ __forceinline__ u32 meet(int barrier, u32* shares, const typename Multiplier<Config>::Accumulators& d) {
        uint4* const mine = vectors(split);
#pragma unroll
        for (int group = 0; group < S::kBlocks * kGroups; ++group) {
            const Acc* const four = d[group / kGroups] + 4 * (group % kGroups);
            __stcg(mine + group * kWarpgroupSize,
                   make_uint4(bits(four[0]), bits(four[1]), bits(four[2]), bits(four[3])));
        }
        bar_sync(barrier, kWarpgroupSize);
        if (threadIdx.x % kWarpgroupSize == 0) *shares = attend(meeting, split, splits);
        bar_sync(barrier, kWarpgroupSize);
        return *shares;
    }

    /// The whole sums of one unit.
    __device__ __forceinline__ void sum(int unit, Unit& sums) const {
#pragma unroll
        for (int i = 0; i < 4 * kUnitGroups; ++i) sums[i] = 0;
#pragma unroll(kSlicesAhead)
        for (int slice = 0; slice < splits; ++slice) {
            const uint4* const from = vectors(slice) + unit * kUnitGroups * kWarpgroupSize;
#pragma unroll
            for (int group = 0; group < kUnitGroups; ++group) {
                const uint4 words = __ldcg(from + group * kWarpgroupSize);
                sums[4 * group] += number<Acc>(words.x);
                sums[4 * group + 1] += number<Acc>(words.y);
                sums[4 * group + 2] += number<Acc>(words.z);
                sums[4 * group + 3] += number<Acc>(words.w);
            }
        }
    }

    /// Adds up and stores the units of some slices; `row` and `column` are this warpgroup's first.
    __device__ __forceinline__ void write(u32 shares, const Finish<Config>& finish, int row, int column) const {
        DirectStore<Config> store(finish);
        for (; shares != 0; shares &= shares - 1) {
#pragma unroll 1
            for (int unit = __ffs(shares) - 1; unit < kUnits; unit += splits) {
                Unit sums;
                sum(unit, sums);
                store.template groups<kUnitGroups>(row + unit / kBlockUnits * kInstructionM,
                                                   column + unit % kBlockUnits * (8 * kUnitGroups), sums);
            }
        }
    }

private:
    /// This thread's first 16 bytes of a slice.
    __device__ __forceinline__ uint4* vectors(int slice) const {
        return reinterpret_cast<uint4*>(partials + (long long)slice * kFloats) + threadIdx.x % kWarpgroupSize;
    }
};
