// Clusters in step: those that share rows or columns ask L2 for them at the same moment, and it reads them once.
#pragma once

#include "common/tile_grid.cuh"
#include "common/types.cuh"
#include "ptx/relaxed.cuh"

/// Arrivals of all clusters at the meetings of the launch that runs; 0 before it and after it. Launches of one module
/// that overlap may leave another number: clusters then don't wait, or wait in vain.
__device__ u32 lockstep_arrivals;

/// Meetings of all clusters, in the middle of every 32 stages of a tile, in those waves in which each cluster has one.
/// Only time depends on them: a cluster that has waited in vain, for blocks that don't run yet, waits no more.
struct Lockstep {
    static constexpr int kStages = 32;     // from one meeting to the next
    static constexpr int kMinStages = 48;  // of a tile: between shorter ones, epilogues take clusters out of step
    static constexpr int kLooks = 24;      // at the arrivals: about 20 us

    u32 meetings = 0;  // that this cluster has been to
    bool waits = true;

    __device__ __forceinline__ static bool pays(const TileGrid& grid) { return grid.k_stages >= kMinStages; }

    /// Called before each stage of each tile; `tile.k` counts those that are loaded.
    __device__ __forceinline__ void meet(const TileGrid& grid, const Tile& tile, int clusters) {
        if (tile.k % kStages != kStages / 2 || !pays(grid)) return;
        const int waves = grid.tiles / clusters;
        if (tile.index >= waves * clusters) return;
        const u32 last = waves * ((grid.k_stages + kStages / 2 - 1) / kStages);
        const u32 expected = ++meetings * clusters;
        if (meetings == last) {  // Nobody waits there, so that who comes last can clear the arrivals.
            const u32 arrived = atom_add_relaxed(&lockstep_arrivals, 1) + 1;
            if (arrived == expected) atom_add_relaxed(&lockstep_arrivals, -expected);
            return;
        }
        red_add_relaxed(&lockstep_arrivals, 1);
        for (int look = 0; waits && look < kLooks; ++look) {
            if (ld_relaxed(&lockstep_arrivals) >= expected) return;
        }
        waits = false;
    }
};
