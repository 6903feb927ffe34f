// Partial sums: several blocks multiply parts of one tile's K, and the block that writes the tile adds their sums up.
#pragma once

#include "common/accumulator.cuh"
#include "common/direct_store.cuh"
#include "common/finish.cuh"
#include "common/fragment.cuh"
#include "common/types.cuh"

/// Where the partial sums of one part of a tile lie. A slice of K is stored in fragment order: for each column group of
/// each block of rows, 16 bytes per thread, neighbouring threads side by side.
///
/// `Pitch` is the integer type of the distance between slices.
template <class Config, class Pitch>
struct PartialSums {
    using Acc = Accumulator<Config>;
    static constexpr int kThreads = Fragment<Config>::kThreads;

    uint4* first;  // of slice 0: the first column group of thread 0
    Pitch pitch;   // 16-byte vectors from one slice to the next

    /// This thread's vector of column group `group`.
    __device__ __forceinline__ uint4* at(int slice, int group) const {
        return first + slice * pitch + Fragment<Config>::thread() + group * kThreads;
    }

    /// Adds up column groups `group` to `group + kCount` over the slices, in their order, so that two runs give the same
    /// bits. `load` reads a vector; those of `kAhead` slices are requested together.
    template <int kCount, int kAhead, class Load>
    __device__ __forceinline__ void add_up(int slices, int group, Acc (&sums)[4 * kCount], Load load) const {
#pragma unroll
        for (int i = 0; i < 4 * kCount; ++i) sums[i] = 0;
#pragma unroll(kAhead)
        for (int slice = 0; slice < slices; ++slice) {
            const uint4* const from = at(slice, group);
#pragma unroll
            for (int i = 0; i < kCount; ++i) add_words(sums + 4 * i, load(from + i * kThreads));
        }
    }
};

/// Partial sums in the workspace. split_k.cuh and a family's stream-K decide which block adds them up, and when.
template <class Config>
struct Partials {
    using Acc = Accumulator<Config>;
    using At = Fragment<Config>;
    static constexpr int kGroups = At::kColumns / 8;
    /// Column groups of one block of rows that are written together: four make whole sectors of C.
    static constexpr int kUnitGroups = Config::kSwapAb || kGroups % 2 ? 1 : kGroups % 4 || Config::kStreamK ? 2 : 4;
    static constexpr int kUnits = At::kBlocks * kGroups / kUnitGroups;
    static constexpr int kFloats = At::kThreads * At::kBlocks * kGroups * 4;
    /// Slices whose sums are requested together: each such round is a trip to L2.
    static constexpr int kSlicesAhead = kUnitGroups == 4 ? 2 : kUnitGroups == 2 ? 4 : 16;

    PartialSums<Config, long long> sums;
    int slices;

    /// `pitch` is in floats, from one slice to the next.
    __device__ __forceinline__ Partials(float* first, long long pitch, int slices_)
        : sums{reinterpret_cast<uint4*>(first), pitch / 4}, slices(slices_) {}

    /// Stores the sums `d` of one slice.
    __device__ __forceinline__ void store(int slice, const typename At::Accumulators& d) const {
        uint4* const mine = sums.at(slice, 0);
#pragma unroll
        for (int group = 0; group < At::kBlocks * kGroups; ++group) {
            __stcg(mine + group * At::kThreads, words_of(d[group / kGroups] + 4 * (group % kGroups)));
        }
    }

    /// Fixes up every `step`-th unit of the part from `unit` on: adds up its slices and stores it in C. `row` and
    /// `column` are the part's first.
    __device__ __forceinline__ void fix_up(const Finish<Config>& finish, int row, int column, int unit, int step) const {
        DirectStore<Config> store(finish);
#pragma unroll 1
        for (; unit < kUnits; unit += step) {
            Acc whole[4 * kUnitGroups];
            sums.template add_up<kUnitGroups, kSlicesAhead>(slices, unit * kUnitGroups, whole,
                                                            [](const uint4* from) { return __ldcg(from); });
            store.template unit<kUnitGroups>(row, column, unit, whole);
        }
    }
};
