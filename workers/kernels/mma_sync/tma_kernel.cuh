// C = A·B by mma.sync where the target has TMA: a producer fills the ring, and no barrier holds the warps together.
//
//   producer   wait empty[s] → expect bytes → TMA A, TMA B → s+1 …       one thread, tiles ahead of the products
//   consumers  each warp: wait full[s] → steps of K → release s → …       → epilogue
//
//   step        0            1            …    last - 1                             last
//   loads       step 1       step 2            last                                 step 0 of the next stage
//   products    step 0       step 1            last - 1                             last
//   then                                       release this stage, wait for next
//
// A stage has two mbarriers: `full` counts its bytes, `empty` the warps that have read it. Warps drift apart, so that some
// load fragments while others multiply, and the producer fills the ring with the next tile during the epilogue. TMA
// writes zeros outside the operands. Steps, products and epilogue are those of kernel.cuh.
#pragma once

#include "common/types.cuh"
#include "mma_sync/kernel.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_cta.cuh"

/// A stage of the ring, and the parity of its current round.
template <class Config>
struct RingPosition {
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == Config::kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <class Config>
struct TmaGemm : MmaGemm<Config> {
    using Base = MmaGemm<Config>;
    using S = Shape<Config>;
    using Ring = RingPosition<Config>;
    using Base::args;
    using Base::smem;

    const CUtensorMap* map_a;
    const CUtensorMap* map_b;

    __device__ __forceinline__ void run() {
        const int warp = warp_uniform(threadIdx.x / kWarpSize);
        if (warp == 0 && elect_sync()) {
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            for (int stage = 0; stage < Config::kStages; ++stage) {
                mbarrier_init(&smem.flags.full[stage], 1);
                mbarrier_init(&smem.flags.empty[stage], S::kThreads / kWarpSize);
            }
            fence_mbarrier_init();
        }
        __syncthreads();
        if (warp * kWarpSize >= S::kThreads) {
            if constexpr (Config::kProducerRegisters > 0) setmaxnreg_dec<Config::kProducerRegisters>();
            if (warp * kWarpSize == S::kThreads && elect_sync()) produce();
        } else {
            if constexpr (Config::kProducerRegisters > 0) setmaxnreg_inc<Config::kConsumerRegisters>();
            consume(warp);
        }
    }

    // --------------------------------------------------------------------------------------------- producer

    /// Fills the ring with all stages of all tiles of this block.
    __device__ __forceinline__ void produce() {
        Walk<Config> walk(args);
        Ring ring;
#pragma unroll 1
        for (Tile tile; walk.next(tile);) {
#pragma unroll 1
            for (int k = tile.k; k < tile.k_end; ++k, ring.advance()) {
                // The first round finds the ring empty: waiting for the phase before the first returns at once.
                mbarrier_wait(&smem.flags.empty[ring.stage], ring.parity ^ 1);
                u64* const full = &smem.flags.full[ring.stage];
                auto& to = smem.stages[ring.stage];
                mbarrier_arrive_expect_tx(full, S::kStageBytes);
                load<typename S::A>(to.a, map_a, full, tile.m * Config::kTileM, k, tile.batch, args.hint_a);
                load<typename S::B>(to.b, map_b, full, tile.n * Config::kTileN, k, tile.batch, args.hint_b);
            }
        }
    }

    /// Loads one operand of one stage, a box for each span; `first` is the tile's first row.
    template <class Op>
    __device__ __forceinline__ static void load(unsigned char* to, const CUtensorMap* map, u64* full, int first, int k,
                                                int batch, u64 hint) {
        static_assert(Op::kLines <= 256, "lines of a box");
        const int depth = k * Op::kDepth;
#pragma unroll
        for (int span = 0; span < Op::kSpans; ++span) {
            const int along = span * (Op::kSpanBytes / Op::kElementBytes);
            tma_load_cta_3d(to + span * Op::kLines * Op::kSpanBytes, map, full,
                            (Op::kMnMajor ? first : depth) + along, Op::kMnMajor ? depth : first, batch, hint);
        }
    }

    // -------------------------------------------------------------------------------------------- consumers

    __device__ __forceinline__ void consume(int warp) {
        const int row = warp / S::kWarpsN * S::kWarpM, column = warp % S::kWarpsN * S::kWarpN;
        const FragmentLoad<Config> fragments(row, column);
        Walk<Config> walk(args);
        Ring ring;
#pragma unroll 1
        for (Tile tile; walk.next(tile);) {
            Sums<Config> d;
            multiply(fragments, tile, ring, d);
            this->write(walk, tile, tile.m * Config::kTileM + row, tile.n * Config::kTileN + column, d);
        }
    }

    /// The main loop of one tile; the ring runs on to the next.
    __device__ __forceinline__ void multiply(const FragmentLoad<Config>& fragments, const Tile& tile, Ring& ring,
                                             Sums<Config>& sums) {
        sums.clear();
        Sums<Config> recent;  // fp8 sums since the last promotion
        if constexpr (Config::kPromoted) recent.clear();
        Sums<Config>& d = Config::kPromoted ? recent : sums;
        Fragments<Config> held[2];
        wait(ring);
        fragments.load(smem.stages[ring.stage], 0, held[0]);
#pragma unroll 1
        for (int k = tile.k + 1; k < tile.k_end; ++k) {
            steps<0, true>(fragments, ring, held, d);
            if constexpr (Config::kPromoted) this->promote(k, recent, sums);
        }
        // A branch that is always taken: ptxas would move products into the epilogue, and spill its registers for them.
        if (tile.k < tile.k_end) steps<0, false>(fragments, ring, held, d);
        if constexpr (Config::kPromoted) sums.add(recent);
    }

    /// Step `kStep` of a stage and those after it: see the table above. The last stage of a tile has no next.
    template <int kStep, bool kNext>
    __device__ __forceinline__ void steps(const FragmentLoad<Config>& fragments, Ring& ring,
                                          Fragments<Config> (&held)[2], Sums<Config>& d) {
        constexpr int kLast = S::kSteps - 1;
        if constexpr (kStep < kLast || kNext) {
            fragments.load(smem.stages[ring.stage], (kStep + 1) % S::kSteps, held[(kStep + 1) % 2]);
        }
        this->products(held[kStep % 2], d);
        if constexpr (kStep == kLast - 1) {
            release(ring);
            ring.advance();
            if constexpr (kNext) wait(ring);
        }
        if constexpr (kStep < kLast) steps<kStep + 1, kNext>(fragments, ring, held, d);
    }

    __device__ __forceinline__ void wait(const Ring& ring) { mbarrier_wait(&smem.flags.full[ring.stage], ring.parity); }

    /// Tells the producer that this warp has read a stage. The next copy into it is a write of the async proxy, which
    /// only a proxy fence orders behind the warp's own reads: a bare arrival overtakes `ldmatrix` on its way.
    __device__ __forceinline__ void release(const Ring& ring) {
        fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(&smem.flags.empty[ring.stage]);
    }
};
