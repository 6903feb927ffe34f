// Sums on their way through the workspace: what several blocks multiplied of one tile's K is brought there, and added up by
// whoever writes it. split_k.cuh and stream_k.cuh say who does, and when.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/epilogue.cuh"
#include "sm90_wgmma/finish.cuh"
#include "sm90_wgmma/multiply.cuh"

/// One consumer warpgroup's part of a tile, in slices of K. Sums of a slice lie in fragment order, 16 bytes a thread,
/// neighbours side by side.
template <class Config>
struct Partials {
    using S = Shape<Config>;
    using Acc = Accumulator<Config>;
    static constexpr int kGroups = Config::kTileN / 8;
    /// Column groups of one m64 block that are written together: four make whole sectors of C.
    static constexpr int kUnitGroups = Config::kSwapAb || kGroups % 2 ? 1 : kGroups % 4 || Config::kStreamK ? 2 : 4;
    static constexpr int kBlockUnits = kGroups / kUnitGroups;
    static constexpr int kUnits = S::kBlocks * kBlockUnits;
    static constexpr int kFloats = kWarpgroupSize * S::kBlocks * S::kAccumulators;
    /// Slices whose sums are asked for together: each such round is a trip to L2.
    static constexpr int kSlicesAhead = kUnitGroups == 4 ? 2 : kUnitGroups == 2 ? 4 : 16;
    using Unit = Acc[4 * kUnitGroups];

    float* first;     // of slice 0
    long long pitch;  // floats from one slice to the next
    int slices;

    /// Brings the sums `d` of one slice.
    __device__ __forceinline__ void bring(int slice, const typename Multiplier<Config>::Accumulators& d) const {
        uint4* const mine = vectors(slice);
#pragma unroll
        for (int group = 0; group < S::kBlocks * kGroups; ++group) {
            __stcg(mine + group * kWarpgroupSize, words_of(d[group / kGroups] + 4 * (group % kGroups)));
        }
    }

    /// Adds up and stores every `step`-th unit; `row` and `column` are this warpgroup's first.
    __device__ __forceinline__ void write(const Finish<Config>& finish, int row, int column, int unit, int step) const {
        DirectStore<Config> store(finish);
#pragma unroll 1
        for (; unit < kUnits; unit += step) {
            Unit sums;
            sum(unit, sums);
            store.template groups<kUnitGroups>(row + unit / kBlockUnits * kInstructionM,
                                               column + unit % kBlockUnits * (8 * kUnitGroups), sums);
        }
    }

private:
    /// The whole sums of one unit.
    __device__ __forceinline__ void sum(int unit, Unit& sums) const {
#pragma unroll
        for (int i = 0; i < 4 * kUnitGroups; ++i) sums[i] = 0;
#pragma unroll(kSlicesAhead)
        for (int slice = 0; slice < slices; ++slice) {
            const uint4* const from = vectors(slice) + unit * kUnitGroups * kWarpgroupSize;
#pragma unroll
            for (int group = 0; group < kUnitGroups; ++group) {
                add_words(sums + 4 * group, __ldcg(from + group * kWarpgroupSize));
            }
        }
    }

    /// This thread's first 16 bytes of a slice.
    __device__ __forceinline__ uint4* vectors(int slice) const {
        return reinterpret_cast<uint4*>(first + slice * pitch) + threadIdx.x % kWarpgroupSize;
    }
};
