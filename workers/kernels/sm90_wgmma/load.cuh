// The loading side: fills stages of the ring by TMA, in the order in which the consumers use them.
#pragma once

#include "common/types.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "sm90_wgmma/schedule.cuh"
#include "sm90_wgmma/smem.cuh"

/// This block's position in its cluster. Ranks run along M first; a cluster along K has no other extent.
template <class Config>
struct ClusterPlace {
    int rank, m, n, k;

    __device__ __forceinline__ explicit ClusterPlace(int rank_)
        : rank(rank_),
          m(rank_ % Config::kClusterM),
          n(rank_ / Config::kClusterM % Config::kClusterN),
          k(rank_ % Config::kClusterK) {}

    /// Blocks that share this block's rows of A: every column of its cluster row.
    __device__ __forceinline__ u16 row_mask() const {
        u32 mask = 0;
#pragma unroll
        for (int column = 0; column < Config::kClusterN; ++column) mask |= 1u << (column * Config::kClusterM);
        return u16(mask << m);
    }
    /// Blocks that share this block's columns of B: its cluster column.
    __device__ __forceinline__ u16 column_mask() const {
        return u16(((1u << Config::kClusterM) - 1) << (n * Config::kClusterM));
    }
};

/// One thread's walk over tiles and stages. `issue` loads one stage and returns whether there was one.
template <class Config>
struct Loader {
    using S = Shape<Config>;

    SharedMemory<Config>& smem;
    const CUtensorMap* map_a;
    const CUtensorMap* map_b;
    const WgmmaArguments& args;
    ClusterPlace<Config> place;
    TileWalk<Config> walk;
    Tile tile;
    int stage_k = 0;  // of the tile, to be loaded next; `tile.k` counts the stages that have been
    RingPosition<Config::kStages> ring;
    Lockstep lockstep;

    __device__ __forceinline__ Loader(SharedMemory<Config>& smem_, const CUtensorMap* a, const CUtensorMap* b,
                                      const WgmmaArguments& args_, ClusterPlace<Config> place_,
                                      TileWalk<Config> walk_)
        : smem(smem_), map_a(a), map_b(b), args(args_), place(place_), walk(walk_) {
        tile.k = tile.k_end = 0;
    }

    /// Finds the first tile, while the block waits for something else anyway.
    __device__ __forceinline__ void begin() { next(); }

    /// Prefetches the first stages into L2. Earlier kernels may still be running, and writing them.
    __device__ __forceinline__ void prefetch() {
        if constexpr (Config::kPrefetchStages > 0) {
            if (tile.k == tile.k_end && !next()) return;
            const int end = min(tile.k_end, tile.k + Config::kPrefetchStages);
            for (int k = tile.k; k < end; ++k) {
                prefetch<typename S::A>(map_a, first_row(), place.n, k, args.hint_a);
                prefetch<typename S::B>(map_b, first_column(), place.m, k, args.hint_b);
            }
        }
    }

    __device__ __forceinline__ bool issue() {
        if (tile.k == tile.k_end && !next()) return false;
        if constexpr (S::kInStep && !S::kMeetsWhenFree) meet();
        // The first round finds the ring empty: waiting for the phase before the first returns at once.
        mbarrier_wait(&smem.empty[ring.stage], ring.parity ^ 1);
        if constexpr (S::kInStep && S::kMeetsWhenFree) meet();
        const int row = first_row(), column = first_column();
        u64* const full = &smem.full[ring.stage];
        mbarrier_arrive_expect_tx(full, S::kStageBytes);
        load<typename S::A>(smem.a[ring.stage].bytes, map_a, full, row, place.n, place.row_mask(), args.hint_a);
        load<typename S::B>(smem.b[ring.stage].bytes, map_b, full, column, place.m, place.column_mask(), args.hint_b);
        ring.advance();
        ++tile.k;
        stage_k += walk.direction;
        return true;
    }

    /// Waits until every stage is released. A block of a cluster must not exit while another may still signal its
    /// barriers; its own consumers have waited for everything that others write into its stages.
    __device__ __forceinline__ void drain() {
        if constexpr (S::kMulticasts) {
            for (int stage = 0; stage < Config::kStages; ++stage, ring.advance()) {
                mbarrier_wait(&smem.empty[ring.stage], ring.parity ^ 1);
            }
        }
    }

private:
    /// Moves on to the next tile; returns whether there is one.
    __device__ __forceinline__ bool next() {
        const bool found = walk.next(tile);
        stage_k = walk.direction > 0 ? tile.k : tile.k_end - 1;
        return found;
    }
    __device__ __forceinline__ void meet() {
        if (place.rank == 0) lockstep.meet(args.grid, tile.k, walk.at, walk.step);
    }
    __device__ __forceinline__ int first_row() const { return (tile.m * Config::kClusterM + place.m) * Config::kTileM; }
    __device__ __forceinline__ int first_column() const { return (tile.n * Config::kClusterN + place.n) * Config::kTileN; }

    /// Loads this block's slice of one operand tile, one box per span.
    template <class Tiling>
    __device__ __forceinline__ void load(unsigned char* to, const CUtensorMap* map, u64* full, int first, int slice,
                                         u16 sharers, u64 hint) const {
        boxes<Tiling>(first, slice, stage_k, [&](int span, int line, int x, int y) {
            unsigned char* const box = to + (span * Tiling::kLines + line) * Tiling::kSpanBytes;
            if constexpr (Tiling::kSharers > 1) {
                tma_load_3d_multicast(box, map, full, x, y, tile.batch, sharers, hint);
            } else {
                tma_load_3d(box, map, full, x, y, tile.batch, hint);
            }
        });
    }

    template <class Tiling>
    __device__ __forceinline__ void prefetch(const CUtensorMap* map, int first, int slice, int stage, u64 hint) const {
        boxes<Tiling>(first, slice, stage,
                      [&](int, int, int x, int y) { tma_prefetch_3d(map, x, y, tile.batch, hint); });
    }

    /// Visits the boxes of this block's slice of a stage: `visit(span, first line, x, y)`.
    template <class Tiling, class Visit>
    __device__ __forceinline__ static void boxes(int first, int slice, int stage, Visit visit) {
        const int k = stage * Config::kTileK;
        const int line = Tiling::kSharers > 1 ? slice * Tiling::kSlice : 0;
        // Unswizzled tiles are many boxes: unrolled, their addresses alone would fill a producer's registers.
#pragma unroll(Tiling::kSpans <= 4 ? Tiling::kSpans : 1)
        for (int span = 0; span < Tiling::kSpans; ++span) {
            visit(span, line, (Tiling::kMnMajor ? first : k) + span * Tiling::kSpan,
                  (Tiling::kMnMajor ? k : first) + line);
        }
    }
};
