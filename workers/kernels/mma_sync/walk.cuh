// The tiles, slices and shares of tiles that one block computes, one after another.
#pragma once

#include "common/types.cuh"
#include "mma_sync/arguments.cuh"

template <class Config>
struct Walk {
    const MmaSyncArguments& args;
    int at;          // of the grid: the next whole tile, or slice of one
    int stage, end;  // stream-K: of this block's share, counted over all shared tiles

    __device__ __forceinline__ explicit Walk(const MmaSyncArguments& args_)
        : args(args_), at(blockIdx.x), stage(0), end(0) {
        if constexpr (Config::kStreamK) {
            at += args.shares.tiles;
            if (args.shares.tiles > 0) {
                stage = args.shares.begin(blockIdx.x);
                end = args.shares.begin(blockIdx.x + 1);
            }
        }
    }

    /// Finds what comes next; false if nothing does. A share comes first, so that other blocks multiply whole tiles while
    /// the last slice of a tile is on its way.
    __device__ __forceinline__ bool next(Tile& tile) {
        if constexpr (Config::kStreamK) {
            if (stage < end) {
                tile.index = args.shares.tile.quotient(stage);
                tile.k = stage - tile.index * args.grid.k_stages;
                tile.k_end = min(args.grid.k_stages, tile.k + end - stage);
                tile.split = int(blockIdx.x) - first_block(tile);
                args.grid.locate(tile);
                stage += tile.k_end - tile.k;
                return true;
            }
        }
        if (at >= args.grid.tiles) return false;
        tile = tile_at<Config::kSplits != 0>(args.grid, at);
        at += gridDim.x;
        return true;
    }

    /// The blocks that multiply the first and the last stage of a shared tile.
    __device__ __forceinline__ int first_block(const Tile& tile) const {
        return args.shares.block_of(tile.index * args.grid.k_stages);
    }
    __device__ __forceinline__ int last_block(const Tile& tile) const {
        return args.shares.block_of((tile.index + 1) * args.grid.k_stages - 1);
    }
};
