// Which tile comes next: a persistent walk over cluster tiles, grouped so that neighbours in time share operands.
#pragma once

#include "common/types.cuh"

/// Walks the grid of cluster tiles. Cluster i of n takes tiles i, i + n, …
///
/// Tiles are numbered group by group. With `along_n` false a group is `group` tile rows high; inside it M runs
/// fastest, then N. With `along_n` true the two change places. The last group may be narrower.
struct Schedule {
    int tiles_m, tiles_n, group;
    bool along_n;
    int tile, step, count;

    __device__ __forceinline__ Schedule(int m, int n, int cluster_tile_m, int cluster_tile_n, int along_n_, int group_,
                                        int cluster, int clusters)
        : tiles_m(ceil_div(m, cluster_tile_m)),
          tiles_n(ceil_div(n, cluster_tile_n)),
          group(group_),
          along_n(along_n_ != 0),
          tile(cluster),
          step(clusters),
          count(tiles_m * tiles_n) {}

    /// Whether there is a tile; its coordinates, in cluster tiles.
    __device__ __forceinline__ bool next(int& tile_m, int& tile_n) {
        if (tile >= count) return false;
        const int across = along_n ? tiles_n : tiles_m;
        const int along = along_n ? tiles_m : tiles_n;
        const int per_group = group * along;
        const int first = tile / per_group * group;
        const int width = min(group, across - first);
        const int within = tile % per_group;
        const int fast = first + within % width;
        const int slow = within / width;
        tile_m = along_n ? slow : fast;
        tile_n = along_n ? fast : slow;
        tile += step;
        return true;
    }
};

/// A place in the ring of stages, and the parity of the round it is in.
template <int kStages>
struct RingPosition {
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};
