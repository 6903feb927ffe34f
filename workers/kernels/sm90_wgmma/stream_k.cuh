// Stream-K: the tiles of a last wave that is not full are shared out. Each has an owner, which multiplies the first
// stages of its K; peers have multiplied the others before. All store their sums in the workspace, and the owner fixes the
// tile up: it adds the sums in the order of K, so that two runs give the same bits.
//
//   peer     ends of shared tiles: multiply → store sums;    then tiles of its own
//   owner    tiles of its own, then its shared tile: multiply → store sums → fix up; then a last tile of its own
//
// An owner's last tile comes after the shared one so that ping-pong multiplies it during the fix-up. Owners wait for
// peers: the launch is cooperative, so that the device runs all blocks at the same time.
#pragma once

#include "common/partials.cuh"
#include "common/semaphore.cuh"
#include "common/types.cuh"
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/schedule.cuh"
#include "sm90_wgmma/shape.cuh"

/// One part of a shared tile. In the workspace the slices of a tile follow one another, its owner's first, and tiles
/// follow one another too. From one pair of a tile and its peer to the next, either the tile or the peer moves on by one,
/// so that their sum numbers the pairs; each tile takes one slice more, for its owner.
template <class Config>
struct StreamK {
    using S = Shape<Config>;
    static constexpr int kParts = S::kClusterSize * S::kTeam;  // of one tile
    static constexpr int kFloats = Partials<Config>::kFloats;

    int owner, first_peer, barrier;
    Partials<Config> partials;
    Semaphore& semaphore;

    __device__ __forceinline__ StreamK(const WgmmaArguments& args, int owner_, int part, int barrier_)
        : owner(owner_),
          first_peer(args.shared.peer_of(owner, 0)),
          barrier(barrier_),
          partials(args.partials + ((2LL * owner + first_peer) * kParts + part) * kFloats, kParts * kFloats,
                   args.shared.peer_of(owner, args.shared.left.divisor - 1) - first_peer + 2),
          semaphore(args.semaphores[owner * kParts + part]) {}

    /// Stores a peer's sums for the owner.
    __device__ __forceinline__ void store(int peer, const typename Fragment<Config>::Accumulators& d) const {
        partials.store(1 + peer - first_peer, d);
        bar_sync(barrier, kWarpgroupSize);
        if (threadIdx.x % kWarpgroupSize == 0) atom_add_acq_rel(&semaphore.arrived, 1);
    }

    /// The owner's part: waits for the sums of all peers and writes the tile. `row` and `column` are this warpgroup's
    /// first.
    __device__ __forceinline__ void fix_up(const Finish<Config>& finish, int row, int column,
                                           const typename Fragment<Config>::Accumulators& d) const {
        partials.store(0, d);
        if (threadIdx.x % kWarpgroupSize == 0) {
            while (ld_acquire(&semaphore.arrived) != u64(partials.slices - 1)) {
            }
            semaphore.arrived = 0;
        }
        bar_sync(barrier, kWarpgroupSize);
        partials.fix_up(finish, row, column, 0, 1);
    }
};
