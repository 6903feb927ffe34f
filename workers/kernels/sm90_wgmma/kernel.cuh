// C = A·Bᵀ on Hopper: a warp-specialised persistent GEMM.
//
// One producer warpgroup fills a ring of stages by TMA; one to three consumer warpgroups multiply from it with
// wgmma, each its own rows of the tile. Two mbarriers a stage hand it over: `full` counts bytes that have
// arrived, `empty` counts consumer warps that are done with it. In a cluster, blocks of a row share A and blocks
// of a column share B: each loads its slice and multicasts it to the others.
//
//   producer   wait empty[s] → expect bytes → TMA A, TMA B → s+1 …                      (runs tiles ahead)
//   consumers  wait full[s] → wgmma on s → wait for the wgmma of s-1 → release s-1 → … → epilogue
//
// A[M,K] and B[N,K] are row-major bf16, C[M,N] row-major bf16, accumulation is f32. TMA fills what lies outside
// the operands with zeros, so that only the epilogue knows of edges.
#pragma once

#include "common/types.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_mma_async.cuh"
#include "sm90_wgmma/epilogue.cuh"
#include "sm90_wgmma/schedule.cuh"
#include "sm90_wgmma/smem.cuh"

struct GemmArguments {
    const CUtensorMap* map_a;
    const CUtensorMap* map_b;
    const CUtensorMap* map_c;
    u16* c;
    int m, n, k;
    long long ldc;
    int raster_along_n, raster_group;
};

template <class Config>
struct Gemm {
    using Smem = SharedMemory<Config>;
    using Ring = RingPosition<Config::kStages>;

    static constexpr int kElementBytes = 2;
    static constexpr int kInstructionK = 16;
    static constexpr int kInstructionM = 64;
    static constexpr int kConsumers = Config::kConsumerWarpgroups;
    static constexpr int kClusterSize = Config::kClusterM * Config::kClusterN;
    static constexpr int kRows = Config::kTileM / kConsumers;
    static constexpr int kBlocks = kRows / kInstructionM;
    static constexpr int kStageBytes = (Config::kTileM + Config::kTileN) * Config::kTileK * kElementBytes;
    static constexpr int kSpanA = Config::kSwizzleA / kElementBytes;
    static constexpr int kSpanB = Config::kSwizzleB / kElementBytes;
    static constexpr int kSliceA = Config::kTileM / Config::kClusterN;
    static constexpr int kSliceB = Config::kTileN / Config::kClusterM;
    static constexpr int kSharers = Config::kClusterM + Config::kClusterN - 1;
    /// Named barriers 1, 2, 3 belong to the consumers; 0 is the whole block's.
    static constexpr int kFirstConsumerBarrier = 1;

    static_assert(Config::kTileM % (kInstructionM * kConsumers) == 0, "each consumer owns whole m64 blocks");
    static_assert(Config::kTileN % 8 == 0 && Config::kTileN >= 8 && Config::kTileN <= 256, "N of wgmma");
    static_assert(Config::kTileK % kSpanA == 0 && Config::kTileK % kSpanB == 0, "whole swizzle spans in a stage");
    static_assert(kSpanA % kInstructionK == 0 && kSpanB % kInstructionK == 0, "whole k16 steps in a span");
    static_assert(kSliceA % 8 == 0 && kSliceB % 8 == 0, "a multicast slice is whole 8-row swizzle patterns");
    static_assert(kSliceA <= 256 && kSliceB <= 256 && kRows <= 256, "a TMA box has at most 256 rows");
    static_assert(Config::kStages >= 2, "a stage is released one step late");
    static_assert(Config::kThreads == kWarpgroupSize * (1 + kConsumers), "one producer and the consumers");
    static_assert(sizeof(Smem) == Config::kSharedMemoryBytes, "space/families/sm90_wgmma/derive.py says otherwise");

    Smem& smem;
    const GemmArguments& args;
    const int rank;       // of this block in its cluster
    const int rank_m;     // its row
    const int rank_n;     // its column
    const int cluster;    // which cluster of the grid
    const int clusters;   // how many there are

    __device__ __forceinline__ Gemm(Smem& smem_, const GemmArguments& args_)
        : smem(smem_),
          args(args_),
          rank(kClusterSize == 1 ? 0 : int(cluster_ctarank())),
          rank_m(rank % Config::kClusterM),
          rank_n(rank / Config::kClusterM),
          cluster(blockIdx.x / kClusterSize),
          clusters(gridDim.x / kClusterSize) {}

    __device__ __forceinline__ Schedule schedule() const {
        return Schedule(args.m, args.n, Config::kTileM * Config::kClusterM, Config::kTileN * Config::kClusterN,
                        args.raster_along_n, args.raster_group, cluster, clusters);
    }

    /// First row of this block's tile in A and C, first row in B (column of C).
    __device__ __forceinline__ int row_of(int tile_m) const {
        return (tile_m * Config::kClusterM + rank_m) * Config::kTileM;
    }
    __device__ __forceinline__ int column_of(int tile_n) const {
        return (tile_n * Config::kClusterN + rank_n) * Config::kTileN;
    }

    __device__ __forceinline__ void run() {
        set_up();
        const int warpgroup = threadIdx.x / kWarpgroupSize;
        if (warpgroup == 0) {
            if constexpr (Config::kProducerRegisters > 0) setmaxnreg_dec<Config::kProducerRegisters>();
            if (threadIdx.x < kWarpSize && elect_sync()) produce();
        } else {
            if constexpr (Config::kConsumerRegisters > 0) setmaxnreg_inc<Config::kConsumerRegisters>();
            consume(warpgroup - 1);
        }
        // No block leaves while another may still signal its barriers or write its stages.
        if constexpr (kClusterSize > 1) {
            __syncwarp();
            barrier_cluster_arrive();
            barrier_cluster_wait();
        }
    }

    __device__ __forceinline__ void set_up() {
        if (threadIdx.x == 0) {
            prefetch_tensormap(args.map_a);
            prefetch_tensormap(args.map_b);
            if constexpr (Config::kEpilogue == Epilogue::kTma) prefetch_tensormap(args.map_c);
            for (int stage = 0; stage < Config::kStages; ++stage) {
                mbarrier_init(&smem.full[stage], 1);
                mbarrier_init(&smem.empty[stage], 4 * kConsumers * kSharers);
            }
            fence_mbarrier_init();
        }
        __syncthreads();
        if constexpr (kClusterSize > 1) {
            barrier_cluster_arrive();
            barrier_cluster_wait();
        }
    }

    // ---------------------------------------------------------------------------------------- producer

    __device__ __forceinline__ void produce() {
        const int k_iterations = ceil_div(args.k, Config::kTileK);
        Schedule tiles = schedule();
        Ring ring;
        int tile_m, tile_n;
        while (tiles.next(tile_m, tile_n)) {
            const int row = row_of(tile_m);
            const int column = column_of(tile_n);
            for (int k = 0; k < k_iterations; ++k, ring.advance()) {
                // The first round finds the ring empty: waiting for the phase before the first returns at once.
                mbarrier_wait(&smem.empty[ring.stage], ring.parity ^ 1);
                mbarrier_arrive_expect_tx(&smem.full[ring.stage], kStageBytes);
                load_a(ring.stage, k * Config::kTileK, row);
                load_b(ring.stage, k * Config::kTileK, column);
            }
        }
    }

    __device__ __forceinline__ void load_a(int stage, int k, int row) {
        // Blocks of this cluster row are rank_m, rank_m + cluster_m, …
        constexpr u32 kRow = [] {
            u32 mask = 0;
            for (int column = 0; column < Config::kClusterN; ++column) mask |= 1u << (column * Config::kClusterM);
            return mask;
        }();
#pragma unroll
        for (int span = 0; span < Config::kTileK / kSpanA; ++span) {
            unsigned char* const to = smem.a[stage].bytes +
                                      (span * Config::kTileM + (Config::kClusterN > 1 ? rank_n * kSliceA : 0)) * Config::kSwizzleA;
            const int x = k + span * kSpanA;
            if constexpr (Config::kClusterN > 1) {
                tma_load_2d_multicast(to, args.map_a, &smem.full[stage], x, row + rank_n * kSliceA, u16(kRow << rank_m));
            } else {
                tma_load_2d(to, args.map_a, &smem.full[stage], x, row);
            }
        }
    }

    __device__ __forceinline__ void load_b(int stage, int k, int column) {
        // Blocks of this cluster column are consecutive.
        constexpr u32 kColumn = (1u << Config::kClusterM) - 1;
#pragma unroll
        for (int span = 0; span < Config::kTileK / kSpanB; ++span) {
            unsigned char* const to = smem.b[stage].bytes +
                                      (span * Config::kTileN + (Config::kClusterM > 1 ? rank_m * kSliceB : 0)) * Config::kSwizzleB;
            const int x = k + span * kSpanB;
            if constexpr (Config::kClusterM > 1) {
                tma_load_2d_multicast(to, args.map_b, &smem.full[stage], x, column + rank_m * kSliceB,
                                      u16(kColumn << (rank_n * Config::kClusterM)));
            } else {
                tma_load_2d(to, args.map_b, &smem.full[stage], x, column);
            }
        }
    }

    // --------------------------------------------------------------------------------------- consumers

    __device__ __forceinline__ void consume(int consumer) {
        const int k_iterations = ceil_div(args.k, Config::kTileK);
        Schedule tiles = schedule();
        Ring ring;
        float d[kBlocks][Config::kTileN / 2];
        int tile_m, tile_n;
        while (tiles.next(tile_m, tile_n)) {
            multiply(consumer, k_iterations, ring, d);
            const int row = row_of(tile_m) + consumer * kRows;
            if constexpr (Config::kEpilogue == Epilogue::kTma) {
                hand_to_tma(consumer, row, column_of(tile_n), d);
            } else {
#pragma unroll
                for (int block = 0; block < kBlocks; ++block) {
                    store_block_direct<Config>(args.c, args.ldc, row + block * kInstructionM, column_of(tile_n), args.m,
                                               args.n, d[block]);
                }
            }
        }
        if constexpr (Config::kEpilogue == Epilogue::kTma) {
            if (threadIdx.x % kWarpgroupSize == 0) cp_async_bulk_wait_group<0>();
        }
    }

    /// The main loop of one tile. A stage is released once the products of the next one are under way, so that
    /// the tensor core never waits for a barrier.
    __device__ __forceinline__ void multiply(int consumer, int k_iterations, Ring& ring,
                                             float (&d)[kBlocks][Config::kTileN / 2]) {
        int previous = 0;
        for (int k = 0; k < k_iterations; ++k, ring.advance()) {
            mbarrier_wait(&smem.full[ring.stage], ring.parity);
            wgmma_fence();
            multiply_stage(consumer, ring.stage, k > 0, d);
            wgmma_commit_group();
            if (k > 0) {
                wgmma_wait_group<1>();
                release(previous);
            }
            previous = ring.stage;
        }
        wgmma_wait_group<0>();
        release(previous);
    }

    __device__ __forceinline__ void multiply_stage(int consumer, int stage, bool accumulate,
                                                   float (&d)[kBlocks][Config::kTileN / 2]) {
        const u32 a = smem_address(smem.a[stage].bytes) + consumer * kRows * Config::kSwizzleA;
        const u32 b = smem_address(smem.b[stage].bytes);
#pragma unroll
        for (int k = 0; k < Config::kTileK; k += kInstructionK) {
            const u32 a_k = a + k / kSpanA * Config::kTileM * Config::kSwizzleA + k % kSpanA * kElementBytes;
            const u32 b_k = b + k / kSpanB * Config::kTileN * Config::kSwizzleB + k % kSpanB * kElementBytes;
            const u64 descriptor_b = wgmma_descriptor<Config::kSwizzleB>(b_k);
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
                const u64 descriptor_a =
                    wgmma_descriptor<Config::kSwizzleA>(a_k + block * kInstructionM * Config::kSwizzleA);
                wgmma_mma_async(d[block], descriptor_a, descriptor_b, accumulate || k > 0);
            }
        }
    }

    /// Tells every block that may refill this stage that this warp is done with it.
    __device__ __forceinline__ void release(int stage) {
        const int lane = threadIdx.x % kWarpSize;
        if constexpr (kClusterSize == 1) {
            if (lane == 0) mbarrier_arrive(&smem.empty[stage]);
        } else if (lane < kClusterSize) {
            const bool shares = lane % Config::kClusterM == rank_m || lane / Config::kClusterM == rank_n;
            if (shares) mbarrier_arrive_remote(&smem.empty[stage], lane);
        }
    }

    __device__ __forceinline__ void hand_to_tma(int consumer, int row, int column,
                                                const float (&d)[kBlocks][Config::kTileN / 2]) {
        unsigned char* const part = smem.bytes + consumer * kRows * Config::kTileN * kElementBytes;
        const int barrier = kFirstConsumerBarrier + consumer;
        const bool issuer = threadIdx.x % kWarpgroupSize == 0;
        // The store of the tile before may still be reading this part.
        if (issuer) cp_async_bulk_wait_group_read<0>();
        bar_sync(barrier, kWarpgroupSize);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
            stage_block<Config, kRows>(smem_address(part), block * kInstructionM, d[block]);
        }
        fence_proxy_async();
        bar_sync(barrier, kWarpgroupSize);
        if (issuer && row < args.m && column < args.n) store_tile<Config, kRows>(args.map_c, part, column, row);
    }
};
