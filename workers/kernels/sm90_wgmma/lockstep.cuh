// Clusters in step: those that share rows or columns ask L2 for them at the same moment, and it reads them once.
#pragma once

#include "common/tile_grid.cuh"
#include "common/types.cuh"
#include "ptx/relaxed.cuh"

/// Arrivals at the meetings of the launch that runs, and clusters that are between their first meeting and their last.
/// Both are 0 while no launch of the module runs.
__device__ u32 lockstep_arrivals, lockstep_present;

/// Meetings of all clusters, in the middle of every 32 stages of a tile, in those waves in which each cluster has one.
/// Only time depends on them: a cluster that has waited in vain, for blocks that don't run yet, waits no more. Launches
/// of one module that overlap, on two streams, count each other's arrivals and wait too little, or in vain.
struct Lockstep {
    static constexpr int kStages = 32;     // from one meeting to the next
    static constexpr int kMinStages = 48;  // of a tile: between shorter ones, epilogues take clusters out of step
    static constexpr int kLooks = 24;      // at the arrivals: about 20 us
    static constexpr u32 kWaitsNoMore = 1u << 31;

    u32 meetings = 0;  // that this cluster has been to, and whether it waits no more

    __device__ __forceinline__ static bool pays(const TileGrid& grid) { return grid.k_stages >= kMinStages; }

    /// Called before each stage of each tile: `k` stages are loaded, and `next` is the cluster's next tile.
    __device__ __forceinline__ void meet(const TileGrid& grid, int k, int next, int clusters) {
        if (k % kStages != kStages / 2 || !pays(grid)) return;
        const int waves = grid.tiles / clusters;
        if (next >= (waves + 1) * clusters) return;
        const u32 number = ++meetings & ~kWaitsNoMore;
        if (number == 1) red_add_relaxed(&lockstep_present, 1);
        if (number == waves * ((grid.k_stages + kStages / 2 - 1) / kStages)) {
            // Nobody waits at the last one, so that who leaves last can clear the arrivals.
            if (atom_add_relaxed(&lockstep_present, -1) == 1) st_relaxed(&lockstep_arrivals, 0);
            return;
        }
        red_add_relaxed(&lockstep_arrivals, 1);
        if (meetings & kWaitsNoMore) return;
        for (int look = 0; look < kLooks; ++look) {
            if (ld_relaxed(&lockstep_arrivals) >= number * clusters) return;
        }
        meetings |= kWaitsNoMore;
    }
};
