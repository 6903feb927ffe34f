// C = A·B by mma.sync, the instruction of every tensor core from Ampere on: operands in registers, a warp at a time.
//
//   copies      global → ring of stages in shared memory          cp.async, a group a stage, kStages - 1 ahead
//   fragments   stage → registers of a warp, one step of K        ldmatrix, one step ahead of the products
//   products    a warp's part of the tile, 16 x 8 an instruction  mma.sync
//
//   step        0            1            …    last - 1                      last
//   loads       step 1       step 2            last                          step 0 of the next stage
//   copies      part         part              part, then commit
//   products    step 0       step 1            last - 1                      last
//   then                                       wait for the next stage, barrier
//
// The barrier says two things: the next stage has arrived for every thread, and every warp has read the last of this
// stage, which the copies that follow may overwrite: those of the next tile too. Nothing in the loop branches, so that
// the compiler moves loads and copies between products. Copies write zeros outside the operands, so that only the
// epilogue checks bounds. The kernel's M, N, A and B are the problem's, or trade places (swap_ab) so that a problem with
// few rows fills the narrow side of the instruction. Blocks that multiply slices of one tile's K add up their sums in
// common/split_k.cuh, or below where all blocks share the stages of some tiles (stream-K).
#pragma once

#include "common/direct_store.cuh"
#include "common/split_k.cuh"
#include "common/types.cuh"
#include "mma_sync/arguments.cuh"
#include "mma_sync/copy.cuh"
#include "mma_sync/fragments.cuh"
#include "mma_sync/shape.cuh"
#include "mma_sync/sums.cuh"
#include "mma_sync/walk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sync.cuh"

/// Named barrier of a block that exchanges sums; 0 is that of __syncthreads.
constexpr int kSplitBarrier = 1;
/// fp8 products are added in true f32 every so many elements of K, where the problem asks for it.
constexpr int kPromotionK = 128;
/// Four block scales of 1, as ue8m0.
constexpr u32 kOnes = 0x7F7F7F7F;

template <class Config>
struct MmaGemm {
    using S = Shape<Config>;
    using Smem = SharedMemory<Config>;
    static_assert(sizeof(Smem) == Config::kSharedMemoryBytes, "space/families/mma_sync/derive.py says otherwise");
    static_assert(!Config::kPromoted || kPromotionK % Config::kTileK == 0 || Config::kTileK % kPromotionK == 0,
                  "sums are promoted between stages or within one");

    Smem& smem;
    const MmaSyncArguments& args;

    __device__ __forceinline__ void run() {
        const int warp = threadIdx.x / kWarpSize;
        const int row = warp / S::kWarpsN * S::kWarpM, column = warp % S::kWarpsN * S::kWarpN;
        const FragmentLoad<Config> fragments(row, column);
        Walk<Config> walk(args);
#pragma unroll 1
        for (Tile tile; walk.next(tile);) {
            Sums<Config> d;
            multiply(fragments, tile, d);
            write(walk, tile, tile.m * Config::kTileM + row, tile.n * Config::kTileN + column, d);
        }
    }

    /// The main loop of one tile.
    __device__ __forceinline__ void multiply(const FragmentLoad<Config>& fragments, const Tile& tile,
                                             Sums<Config>& sums) {
        StageCopy<Config> copies(smem, args, tile);
#pragma unroll(StageCopy<Config>::kFirstTogether)
        for (int stage = 0; stage < Config::kStages - 1; ++stage) {
            copies.all();
            copies.commit();
        }
        sums.clear();
        Sums<Config> recent;  // fp8 sums since the last promotion
        if constexpr (Config::kPromoted) recent.clear();
        Sums<Config>& d = Config::kPromoted ? recent : sums;
        wait_for_next_stage();
        Fragments<Config> held[2];
        int stage = 0;
        fragments.load(smem.stages[stage], 0, held[0]);
#pragma unroll 1
        for (int k = tile.k; k < tile.k_end; ++k) {
            const int next = stage + 1 == Config::kStages ? 0 : stage + 1;
            steps<0>(fragments, stage, next, held, copies, d);
            if constexpr (Config::kPromoted) promote(k + 1, recent, sums);
            stage = next;
        }
        if constexpr (Config::kPromoted) sums.add(recent);
    }

    /// Step `kStep` of a stage and those after it: see the table above.
    template <int kStep>
    __device__ __forceinline__ void steps(const FragmentLoad<Config>& fragments, int stage, int next,
                                          Fragments<Config> (&held)[2], StageCopy<Config>& copies, Sums<Config>& d) {
        constexpr int kLast = S::kSteps - 1;
        fragments.load(smem.stages[kStep == kLast ? next : stage], (kStep + 1) % S::kSteps, held[(kStep + 1) % 2]);
        if constexpr (kStep == kLast) {
            products(held[kStep % 2], d);
        } else {
            typename StageCopy<Config>::template Held<kStep, kLast> part;
            copies.fetch(part);
            products(held[kStep % 2], d);
            copies.store(part);
            if constexpr (kStep == kLast - 1) {
                copies.commit();
                wait_for_next_stage();
            }
            steps<kStep + 1>(fragments, stage, next, held, copies, d);
        }
    }

    __device__ __forceinline__ static void wait_for_next_stage() {
        cp_async_wait_group<Config::kStages - 2>();
        __syncthreads();
    }

    __device__ __forceinline__ static void products(const Fragments<Config>& held, Sums<Config>& d) {
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) {
#pragma unroll
            for (int j = 0; j < S::kBlocksN; ++j) {
                if constexpr (Config::kUnitScales) {
                    mma_sync_scaled<Config::kInputA, Config::kInputB>(d.at(i, j), held.a[i], held.b[j], kOnes, kOnes);
                } else {
                    mma_sync<Config::kInputA, Config::kInputB>(d.at(i, j), held.a[i], held.b[j]);
                }
            }
        }
    }

    /// Adds what has been summed since the last promotion, if `stages` stages end one.
    __device__ __forceinline__ static void promote(int stages, Sums<Config>& recent, Sums<Config>& sums) {
        constexpr int kStages = Config::kTileK >= kPromotionK ? 1 : kPromotionK / Config::kTileK;
        if (stages % kStages != 0) return;
        sums.add(recent);
        recent.clear();
    }

    // --------------------------------------------------------------------------------------------- epilogue

    /// Writes this warp's part of the tile, or adds it up with those of the other slices of K.
    __device__ __forceinline__ void write(const Walk<Config>& walk, const Tile& tile, int row, int column,
                                          const Sums<Config>& d) const {
        const Finish<Config> finish{args, tile.batch};
        if constexpr (Config::kSplits) {
            SplitK<Config> slice(args, tile.index, tile.split, args.grid.splits.divisor);
            typename Fragment<Config>::Accumulators wide;
#pragma unroll
            for (int i = 0; i < S::kBlocksM; ++i) d.widen(i, wide[i]);
            const u32 shares = slice.store(kSplitBarrier, &smem.flags.shares, wide);
            slice.fix_up(shares, finish, row, column);
        } else if (Config::kStreamK && tile.k_end - tile.k < args.grid.k_stages) {
            add_slice(walk, tile, finish, row, column, d);
        } else {
            DirectStore<Config> store(finish);
#pragma unroll
            for (int i = 0; i < S::kBlocksM; ++i) {
                typename Fragment<Config>::Block wide;
                d.widen(i, wide);
                store.block(row + i * kInstructionM, column, wide);
                // Otherwise the compiler requests what all rows read at once, for which there are no registers.
                __syncwarp();
            }
        }
    }

    /// Stream-K: stores the sums of a slice. The block whose slice arrives last fixes the tile up; it adds slices in
    /// the order of K, so that two runs give the same bits, and no block waits for another. From one pair of a shared
    /// tile and a block to the next, the tile or the block moves on: their sum numbers the slices in the workspace.
    __device__ __forceinline__ void add_slice(const Walk<Config>& walk, const Tile& tile, const Finish<Config>& finish,
                                              int row, int column, const Sums<Config>& d) const {
        using P = Partials<Config>;
        const int first = walk.first_block(tile), slices = walk.last_block(tile) - first + 1;
        const P partials(args.partials + (long long)(tile.index + first) * P::kFloats, P::kFloats, slices);
        typename Fragment<Config>::Accumulators wide;
#pragma unroll
        for (int i = 0; i < S::kBlocksM; ++i) d.widen(i, wide[i]);
        partials.store(tile.split, wide);
        bar_sync(kSplitBarrier, S::kThreads);
        if (threadIdx.x == 0) {
            Semaphore& semaphore = args.semaphores[tile.index];
            smem.flags.shares = atom_add_acq_rel(&semaphore.arrived, 1) + 1 == u64(slices);
            if (smem.flags.shares) semaphore.arrived = 0;
        }
        bar_sync(kSplitBarrier, S::kThreads);
        if (smem.flags.shares) partials.fix_up(finish, row, column, 0, 1);
    }
};
