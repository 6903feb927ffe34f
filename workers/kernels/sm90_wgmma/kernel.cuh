// C = A·B on Hopper: a persistent GEMM over a ring of TMA stages, multiplied by wgmma.
//
// Each stage has two mbarriers: `full` counts bytes that have arrived, `empty` counts consumer warps that are done with
// it. In a cluster, blocks of a row share A and blocks of a column share B: each loads its slice and
// multicasts it to the others. Three schedules:
//
//   cooperative   a producer warpgroup loads; one to three consumers split the rows of a tile
//   ping-pong     a producer loads; two consumers take turns, one multiplies while the other writes C
//   multistage    no producer: a consumer's first thread loads ahead between its own products
//
//   producer   wait empty[s] → expect bytes → TMA A, TMA B → s+1 …                       (runs tiles ahead)
//   consumer   wait full[s] → wgmma on s → wait for the wgmma of s-1 → release s-1 → … → epilogue
//
// TMA fills with zeros whatever lies outside the operands, so that only the epilogue checks bounds. The kernel's M, N, A
// and B are the problem's, or trade places (swap_ab) so that a problem with few rows fills a tile's narrow side.
// Blocks that multiply slices of one tile's K exchange sums through memory (common/split_k.cuh) or within a cluster
// (cluster_k.cuh); blocks that would have no tile in the last wave multiply the ends of the others' (stream_k.cuh).
// Producers of large tiles load in step (lockstep.cuh).
#pragma once

#include "common/direct_store.cuh"
#include "common/split_k.cuh"
#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/opaque.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "sm90_wgmma/arguments.cuh"
#include "sm90_wgmma/cluster_k.cuh"
#include "sm90_wgmma/epilogue.cuh"
#include "sm90_wgmma/load.cuh"
#include "sm90_wgmma/multiply.cuh"
#include "sm90_wgmma/schedule.cuh"
#include "sm90_wgmma/smem.cuh"
#include "sm90_wgmma/stream_k.cuh"

/// Named barriers 1, 2 and 3 belong to the consumers; 4 and 5 pass the turn in ping-pong; 0 is the whole block's.
constexpr int kFirstConsumerBarrier = 1;
constexpr int kFirstTurnBarrier = 4;

template <class Config>
struct Gemm {
    using S = Shape<Config>;
    using Smem = SharedMemory<Config>;
    using Ring = RingPosition<Config::kStages>;
    using Walk = TileWalk<Config>;
    using Products = Multiplier<Config>;
    using Accumulators = typename Products::Accumulators;
    static_assert(sizeof(Smem) == Config::kSharedMemoryBytes, "space/families/sm90_wgmma/derive.py says otherwise");

    Smem& smem;
    const CUtensorMap* map_a;
    const CUtensorMap* map_b;
    const CUtensorMap* map_c;
    const WgmmaArguments& args;
    const ClusterPlace<Config> place;

    __device__ __forceinline__ Gemm(Smem& smem_, const CUtensorMap* a, const CUtensorMap* b, const CUtensorMap* c,
                                    const WgmmaArguments& args_)
        : smem(smem_), map_a(a), map_b(b), map_c(c), args(args_),
          place(S::kClusterSize == 1 ? 0 : int(cluster_ctarank())) {}

    __device__ __forceinline__ Walk walk() const {
        return Walk(args, blockIdx.x / S::kClusterSize, gridDim.x / S::kClusterSize, place.k);
    }

    __device__ __forceinline__ void run() {
        Loader<Config> ahead(smem, map_a, map_b, args, place, walk());
        start(ahead);
        const int warpgroup = warp_uniform(threadIdx.x / kWarpgroupSize);
        if constexpr (!S::kSpecialised) {
            consume(warpgroup, ahead);
            if (threadIdx.x < kWarpSize && elect_sync()) ahead.drain();
        } else if (warpgroup == 0) {
            if constexpr (Config::kProducerRegisters > 0) setmaxnreg_dec<Config::kProducerRegisters>();
            if (threadIdx.x < kWarpSize && elect_sync()) {
                while (ahead.issue()) {
                }
                ahead.drain();
            }
            if constexpr (Config::kClusterK > 1) wait_for_cluster();
        } else {
            if constexpr (Config::kConsumerRegisters > 0) setmaxnreg_inc<Config::kConsumerRegisters>();
            consume(warpgroup - 1, ahead);
        }
    }

    /// Initialises barriers and issues the first loads; without multicast these start before the other threads arrive.
    __device__ __forceinline__ void start(Loader<Config>& ahead) {
        if (threadIdx.x < kWarpSize && elect_sync()) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            if constexpr (Config::kEpilogue != Epilogue::kDirect) prefetch_tensormap(map_c);
            constexpr int kSharers = Config::kClusterM + Config::kClusterN - 1;
            for (int stage = 0; stage < Config::kStages; ++stage) {
                mbarrier_init(&smem.full[stage], 1);
                mbarrier_init(&smem.empty[stage], 4 * S::kTeam * kSharers);
            }
            if constexpr (Config::kClusterK > 1) {
                for (int consumer = 0; consumer < S::kConsumers; ++consumer) cluster_sums(consumer).expect();
            }
            fence_mbarrier_init();
            if constexpr (!S::kMulticasts) fill(ahead);
        }
        if constexpr (!S::kMulticasts) {
            __syncthreads();
            if constexpr (Config::kClusterK > 1) barrier_cluster_arrive_relaxed();
        } else {
            __syncwarp();
            barrier_cluster_arrive_relaxed();
            ahead.begin();
            barrier_cluster_wait();
            if (threadIdx.x < kWarpSize && elect_sync()) fill(ahead);
        }
        griddepcontrol_wait();
        griddepcontrol_launch_dependents();
    }

    /// Fills the empty ring; without a producer one stage stays free for the step after the first.
    __device__ __forceinline__ static void fill(Loader<Config>& ahead) {
        ahead.prefetch();
        griddepcontrol_wait();
#pragma unroll 1
        for (int stage = S::kSpecialised ? 0 : 1; stage < Config::kStages && ahead.issue(); ++stage) {
        }
    }

    // --------------------------------------------------------------------------------------- consumers

    __device__ __forceinline__ void consume(int consumer, Loader<Config>& ahead) {
        const int member = S::kPingpong ? 0 : consumer;
        const Products products(smem, member * S::kRows);
        Walk tiles = walk();
        Ring ring;
        Tile tile;
        if (S::kPingpong && consumer == 1) {
            bar_arrive(kFirstTurnBarrier, 2 * kWarpgroupSize);
            leave_to_the_other(tiles, ring);
        }
        while (tiles.next(tile)) {
            if constexpr (S::kPingpong) bar_sync(kFirstTurnBarrier + consumer, 2 * kWarpgroupSize);
            Accumulators d;
            multiply(consumer, products, tile, ring, ahead, d);
            if constexpr (Config::kClusterK > 1) write_cluster(consumer, member, tile, d);
            else if constexpr (Config::kSplits) write_slice(consumer, member, tile, d);
            else if (Config::kStreamK && tile.k_end - tile.k < args.grid.k_stages) write_shared(consumer, member, tile, d);
            else write_tile(consumer, member, tile, d);
            if constexpr (S::kPingpong) leave_to_the_other(tiles, ring);
        }
        if constexpr (Config::kEpilogue != Epilogue::kDirect) {
            if (leads() && elect_sync()) cp_async_bulk_wait_group_read<0>();
        }
    }

    /// Whether this warp is the first of its warpgroup. Its elected thread drives TMA: the compiler then knows that a
    /// single thread does, and every election picks the same one.
    __device__ __forceinline__ static bool leads() { return threadIdx.x % kWarpgroupSize < kWarpSize; }

    /// Skips the next tile, which is the other consumer's, and its stages.
    __device__ __forceinline__ static void leave_to_the_other(Walk& tiles, Ring& ring) {
        Tile tile;
        if (tiles.next(tile)) ring.advance(tile.k_end - tile.k);
    }

    __device__ __forceinline__ static void load_ahead(Loader<Config>& ahead) {
        if (threadIdx.x < kWarpSize && elect_sync()) ahead.issue();
        __syncwarp();
    }

    /// The main loop of one tile. It releases a stage once the products of the next one are issued, so that the tensor
    /// core never waits for a barrier. Where A or a promoted sum needs the registers, it waits after every stage.
    __device__ __forceinline__ void multiply(int consumer, const Products& products, const Tile& tile, Ring& ring,
                                             Loader<Config>& ahead, Accumulators& d) {
        constexpr bool kWaits = Config::kPromoted || Config::kASource == ASource::kRegisters;
        int previous = 0;
        for (int k = tile.k; k < tile.k_end; ++k, ring.advance()) {
            const bool first = k == tile.k;
            const auto stage = products.stage(ring.stage);
            mbarrier_wait(&smem.full[ring.stage], ring.parity);
            products.multiply(stage, !first, d);
            if constexpr (kWaits) {
                wgmma_wait_group<0>();
                release(ring.stage);
            } else if (!first) {
                wgmma_wait_group<1>();
                release(previous);
            }
            if constexpr (!S::kSpecialised) load_ahead(ahead);
            previous = ring.stage;
        }
        if constexpr (S::kPingpong) bar_arrive(kFirstTurnBarrier + 1 - consumer, 2 * kWarpgroupSize);
        if constexpr (!kWaits) {
            wgmma_wait_group<0>();
            release(previous);
        }
        Products::settle(d);
    }

    /// Tells every block that may refill this stage that this warp is done with it.
    __device__ __forceinline__ void release(int stage) {
        const int lane = threadIdx.x % kWarpSize;
        if constexpr (!S::kMulticasts) {
            if (lane == 0) mbarrier_arrive(&smem.empty[stage]);
        } else if (lane < S::kClusterSize) {
            const bool shares = lane % Config::kClusterM == place.m || lane / Config::kClusterM == place.n;
            if (shares) mbarrier_arrive_remote(&smem.empty[stage], lane);
        }
    }

    // ---------------------------------------------------------------------------------------- epilogue

    __device__ __forceinline__ int row_of(const Tile& tile, int member) const {
        return (tile.m * Config::kClusterM + place.m) * Config::kTileM + member * S::kRows;
    }
    __device__ __forceinline__ int column_of(const Tile& tile) const {
        return (tile.n * Config::kClusterN + place.n) * Config::kTileN;
    }

    /// Stream-K: a peer stores its sums of a shared tile for the owner, which writes the whole tile.
    __device__ __forceinline__ void write_shared(int consumer, int member, const Tile& tile, const Accumulators& d) const {
        const StreamK<Config> part(args, tile.index - args.shared.first, place.rank * S::kTeam + member,
                                   kFirstConsumerBarrier + consumer);
        if (tile.k > 0) part.store(tile.split, d);
        else part.fix_up(Finish<Config>{args, tile.batch}, row_of(tile, member), column_of(tile), d);
    }

    /// Split-K: writes this slice's share once all sums are there.
    __device__ __forceinline__ void write_slice(int consumer, int member, const Tile& tile, const Accumulators& d) {
        const long long part = ((long long)tile.index * S::kClusterSize + place.rank) * S::kTeam + member;
        SplitK<Config> slice(args, part, tile.split, args.grid.splits.divisor);
        const u32 shares = slice.store(kFirstConsumerBarrier + consumer, &smem.shares[consumer], d);
        slice.fix_up(shares, Finish<Config>{args, tile.batch}, row_of(tile, member), column_of(tile));
    }

    /// A cluster along K: writes this block's share once all sums are there.
    __device__ __forceinline__ void write_cluster(int consumer, int member, const Tile& tile, const Accumulators& d) {
        const ClusterK<Config> sums = cluster_sums(consumer);
        wait_for_cluster();
        sums.send(d);
        sums.fix_up(Finish<Config>{args, tile.batch}, row_of(tile, member), column_of(tile));
    }
    __device__ __forceinline__ ClusterK<Config> cluster_sums(int consumer) const { return {smem, consumer, place.k}; }

    /// Waits until every block of a cluster along K has initialised its barriers: all arrived at the start.
    __device__ __forceinline__ static void wait_for_cluster() {
        __syncwarp();
        barrier_cluster_wait();
    }

    __device__ __forceinline__ void write_tile(int consumer, int member, const Tile& tile, const Accumulators& d) {
        const int row = row_of(tile, member), column = column_of(tile);
        const Finish<Config> finish{args, tile.batch};
        if constexpr (Config::kEpilogue == Epilogue::kDirect) {
            DirectStore<Config> store(finish);
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block) store.block(row + block * kInstructionM, column, d[block]);
        } else {
            using Staged = StagedStore<Config>;
            unsigned char* part = smem.bytes + consumer * S::kPartBytes;
#if __CUDACC_VER_MAJOR__ == 13 && __CUDACC_VER_MINOR__ == 0
            // This ptxas would derive addresses before the main loop, and spill to keep them beside 208 accumulators.
            if constexpr (Config::kSwapAb && S::kBlocks * S::kAccumulators > 200) make_opaque(part);
#endif
            const int barrier = kFirstConsumerBarrier + consumer;
#pragma unroll
            for (int next = 0; next < Config::kTileN; next += S::kStagedColumns) {
                const int from = min(next, Config::kTileN - S::kStagedColumns);
                // The store before may still be reading this part.
                if (leads() && elect_sync()) cp_async_bulk_wait_group_read<0>();
                bar_sync(barrier, kWarpgroupSize);
                Staged::stage(finish, smem_address(part), row, column, from, d);
                fence_proxy_async();
                bar_sync(barrier, kWarpgroupSize);
                if (leads() && elect_sync()) {
                    Staged::store(map_c, part, row, column + from, args.m, args.n, tile.batch);
                }
            }
        }
    }
};
