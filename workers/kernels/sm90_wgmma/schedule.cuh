// The tile scheduler: a persistent walk over cluster tiles, and the position in the ring of stages.
#pragma once

#include "common/types.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/lockstep.cuh"
#include "sm90_wgmma/shape.cuh"

/// Walks the grid of cluster tiles. Cluster i of n takes tiles i, i + n, … In a cluster along K each block has a slice of
/// the same tile.
///
/// Whole tiles are loaded along K forwards and backwards in turn: a wave begins where the wave before it ended, with the
/// stages of the rows or columns that both share still in L2.
///
/// Single blocks in step take four steps of the walk together, as a strip. The device places eight blocks or more that
/// follow one another in one GPC, whose loads of the same data L2 answers together: they share rows and columns then.
///
/// Stream-K: the ends of all shared tiles, laid end to end, are cut into equal pieces, and each peer begins with one. A
/// piece may span several tiles. All clusters get the same amount of work, and partial sums arrive long before their
/// owner needs them.
template <class Config>
struct TileWalk {
    static constexpr bool kSplits = Config::kSplits != 0;
    static constexpr bool kShares = Config::kStreamK != 0;
    static constexpr bool kStrips = Shape<Config>::kInStep && Shape<Config>::kClusterSize == 1;
    static constexpr int kStripSteps = 4;
    const WgmmaArguments& args;
    int at, step;
    int place_k;         // in the cluster
    int direction = -1;  // in which the tile is loaded along K
    int shared = 0, shared_end = 0;  // a peer's piece, in stages of all ends
    int swaps_from = 0x7FFFFFFF;     // an owner's last two tiles, the shared one and its last own, change places

    __device__ __forceinline__ TileWalk(const WgmmaArguments& args_, int cluster, int clusters, int place_k_)
        : args(args_), at(cluster), step(clusters), place_k(place_k_) {
        if constexpr (kShares) {
            if (args.shared.kept == 0) return;
            if (cluster < args.shared.owners) {
                swaps_from = args.shared.first - step;
            } else {
                const int piece = args.shared.piece.divisor;
                shared = (cluster - args.shared.owners) * piece;
                shared_end = min(shared + piece, args.shared.owners * int(args.shared.left.divisor));
            }
        }
    }

    /// Moves on to the next tile; returns whether there is one.
    __device__ __forceinline__ bool next(Tile& tile) {
        if constexpr (kShares) {
            if (shared < shared_end) return next_end(tile);
        }
        if (at >= args.grid.tiles) return false;
        tile.index = kSplits ? args.grid.splits.quotient(at) : at;
        tile.split = kSplits ? at - tile.index * int(args.grid.splits.divisor) : place_k;
        tile.k = 0;
        tile.k_end = args.grid.k_stages;
        if constexpr (kShares) {
            if (at >= swaps_from) tile.index += at < args.shared.first ? step : -step;
            if (tile.index >= args.shared.first) tile.k_end = args.shared.kept;
        }
        const int index = tile.index;
        if constexpr (kStrips) {
            if (Lockstep::pays(args.grid)) tile.index = in_strips(index);
        }
        args.grid.locate(tile);
        tile.index = index;
        direction = -direction;
        if constexpr (kSplits || Config::kClusterK > 1) args.grid.slice(tile);
        at += step;
        return true;
    }

private:
    /// The number of the tile that takes the place of tile `index` if the steps of its group are walked by strips.
    __device__ __forceinline__ int in_strips(int index) const {
        const TileGrid& grid = args.grid;
        const int place = index - grid.product.quotient(index) * int(grid.product.divisor);
        const int group = grid.group.quotient(place);
        const int within = place - group * int(grid.group.divisor);
        const Divider across = group == grid.last_group ? grid.last_width : grid.width;
        const int first = across.quotient(within) / kStripSteps * kStripSteps;  // step of the strip
        const int steps = min(kStripSteps, grid.width.quotient(grid.group.divisor) - first);
        const int past = within - first * int(across.divisor);  // tiles of the strip that come before
        const int over = past / steps;
        return index - past + (past - over * steps) * int(across.divisor) + over;
    }
    /// Moves on to this peer's part of the next shared tile.
    __device__ __forceinline__ bool next_end(Tile& tile) {
        const int owner = args.shared.left.quotient(shared);
        tile.index = args.shared.first + owner;
        tile.split = at - args.shared.owners;
        args.grid.locate(tile);
        tile.k = args.shared.kept + shared - owner * int(args.shared.left.divisor);
        tile.k_end = min(args.grid.k_stages, tile.k + shared_end - shared);
        shared += tile.k_end - tile.k;
        return true;
    }
};

/// A position in the ring of stages, and the parity of its current round.
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
    __device__ __forceinline__ void advance(int stages) {
        stage += stages;
        parity ^= stage / kStages & 1;
        stage %= kStages;
    }
};
