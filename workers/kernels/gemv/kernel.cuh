// C = A·B for one to four rows of A: every byte of B is read once, straight from memory into registers.
//
// A team of threads owns a few neighbouring columns of C: `kLanes` lanes of a warp, or of several warps that share K.
// Its threads walk along the rows of B side by side, several loads ahead of the products; A lies in shared memory,
// or comes through L1. Sums are f32 or s32. Shuffles add them up within a warp, shared memory across the warps of a
// team. Where K is split over blocks, the last block to finish fixes the tile up: it adds the slices in their order, so
// that the result does not depend on which block that is.
#pragma once

#include "common/accumulator.cuh"
#include "common/finish.cuh"
#include "common/semaphore.cuh"
#include "common/types.cuh"
#include "gemv/arguments.cuh"
#include "gemv/piece.cuh"
#include "ptx/griddepcontrol.cuh"

enum class APath { kSmem, kCache };

/// Shared memory for sums: those of the warps of a team side by side, and whether this block finished last.
template <class Config>
struct Reduction {
    static constexpr int kThreads = Config::kWarps * kWarpSize;
    static constexpr int kTeam = Config::kLanes * Config::kSplitWarps;
    /// Columns of C that a block computes at a time, and elements of C.
    static constexpr int kTileN = kThreads / kTeam * Config::kColumns;
    static constexpr int kOutputs = Config::kRows * kTileN;
    /// Whether sums go through shared memory.
    static constexpr bool kGathers = Config::kSplitWarps > 1 || Config::kSplits;

    alignas(16) Accumulator<Config> sums[kGathers ? Config::kSplitWarps : 1][kGathers ? kOutputs : 1];
    u32 last;
};

template <class Config>
struct Gemv {
    using R = Reduction<Config>;
    using Acc = Accumulator<Config>;
    using Operand = Piece<Config::kLoadBytes>;
    static constexpr int kRows = Config::kRows, kColumns = Config::kColumns, kUnroll = Config::kUnroll;
    static constexpr int kElementBytes = input_bytes(Config::kElementA);
    static constexpr int kPerWord = (Config::kLoadBytes < 4 ? Config::kLoadBytes : 4) / kElementBytes;
    /// Pieces of a row that a team takes at a time.
    static constexpr int kStep = R::kTeam * kUnroll;
    using Pieces = Operand[kUnroll][kColumns];
    static constexpr bool kStages = Config::kAPath == APath::kSmem;
    static_assert(kElementBytes == input_bytes(Config::kElementB), "no product mixes widths");
    static_assert(Config::kLoadBytes >= kElementBytes, "a load brings whole elements");
    static_assert(Config::kLanes <= kWarpSize && kWarpSize % Config::kLanes == 0, "teams share a warp evenly");
    static_assert(Config::kWarps % Config::kSplitWarps == 0, "teams share a block evenly");
    static_assert(sizeof(R) == Config::kReductionBytes, "space/families/gemv/derive.py says otherwise");
    static_assert(R::kTileN == Config::kTileN, "space/families/gemv/derive.py says otherwise");

    R& reduction;
    unsigned char* const staged;  // A in shared memory: rows of `a_pitch` bytes
    const GemvArguments& args;
    int warp, lane;   // of the block, of the team's part in this warp
    int group;        // which team of the block
    int member;       // which thread of the team
    // The tile that is being computed.
    int batch = -1, split = -1, column;
    int begin, end;   // pieces of K
    int steps;        // whole ones
    const unsigned char* rows[kColumns];  // of B
    Acc sums[kRows][kColumns];

    __device__ __forceinline__ Gemv(unsigned char* smem, const GemvArguments& args_)
        : reduction(*reinterpret_cast<R*>(smem)), staged(smem + sizeof(R)), args(args_) {
        warp = threadIdx.x / kWarpSize;
        lane = threadIdx.x % Config::kLanes;
        group = warp / Config::kSplitWarps * (kWarpSize / Config::kLanes) + threadIdx.x % kWarpSize / Config::kLanes;
        member = warp % Config::kSplitWarps * Config::kLanes + lane;
    }

    __device__ __forceinline__ void run() {
        if (int(blockIdx.x) < args.tiles) prefetch(blockIdx.x);
        griddepcontrol_wait();
        griddepcontrol_launch_dependents();
        for (int tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
            const bool moved = place(tile);
            // The first loads of B are under way while A is staged.
            Pieces first;
            load_first(first);
            if (moved && kStages) stage();
            multiply(first);
            add_lanes();
            if constexpr (R::kGathers) gather(tile);
            else write();
        }
    }

    // ------------------------------------------------------------------------------------------ the walk

    /// Moves on to a tile; returns whether it reads other elements of A than the tile before.
    __device__ __forceinline__ bool place(int tile) {
        const int product = args.product.quotient(tile);
        const int within = tile - product * int(args.product.divisor);
        const int slice = Config::kSplits ? args.slice.quotient(within) : 0;
        const int across = within - slice * int(args.slice.divisor);
        const bool moved = product != batch || slice != split;
        batch = product;
        split = slice;
        column = across * R::kTileN + group * kColumns;
        begin = 0;
        end = args.pieces;
        if constexpr (Config::kSplits) {
            const int slices = args.splits.divisor;
            begin = int((long long)end * slice / slices);
            end = int((long long)end * (slice + 1) / slices);
        }
        steps = (end - begin) / kStep;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) rows[c] = row_of_b(c);
        return moved;
    }

    /// Start of a column's row of B. Columns beyond the last one read that one again, and are not written.
    __device__ __forceinline__ const unsigned char* row_of_b(int c) const {
        const int row = min(column + c, args.n - 1);
        return static_cast<const unsigned char*>(args.b) + batch * args.batch_bytes_b + row * args.row_bytes;
    }

    __device__ __forceinline__ const unsigned char* product_of_a() const {
        return static_cast<const unsigned char*>(args.a) + batch * args.batch_bytes_a;
    }

    /// No kernel writes weights: L2 may load them before earlier kernels have ended.
    __device__ __forceinline__ void prefetch(int tile) {
        if (args.prefetch_steps == 0) return;
        place(tile);
        const int until = min(end, begin + args.prefetch_steps * kStep);
        for (int c = 0; c < kColumns; ++c) {
            for (int piece = begin + member; piece < until; piece += R::kTeam) {
                prefetch_global_l2(rows[c] + (long long)piece * Config::kLoadBytes);
            }
        }
        batch = -1;
    }

    /// Copies the slice's part of every row of A to shared memory.
    __device__ __forceinline__ void stage() {
        __syncthreads();
        if (args.transposed) {
            stage_transposed();
        } else {
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                const unsigned char* const from = product_of_a() + row * args.row_bytes;
                for (int piece = begin + threadIdx.x; piece < end; piece += R::kThreads) {
                    Operand moved;
                    moved.load(from + (long long)piece * Config::kLoadBytes);
                    moved.store(staged + row * args.a_pitch + (piece - begin) * Config::kLoadBytes);
                }
            }
        }
        __syncthreads();
    }

    __device__ __forceinline__ void stage_transposed() {
        constexpr int kPerPiece = Config::kLoadBytes / kElementBytes;
        const int count = (end - begin) * kPerPiece;
        const unsigned char* const from = product_of_a() + (long long)begin * Config::kLoadBytes * kRows;
        for (int k = threadIdx.x; k < count; k += R::kThreads) {
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                Piece<kElementBytes> moved;
                moved.load(from + ((long long)k * kRows + row) * kElementBytes);
                moved.store(staged + row * args.a_pitch + k * kElementBytes);
            }
        }
    }

    // ------------------------------------------------------------------------------------ the products

    __device__ __forceinline__ void load_first(Pieces& first) const {
        if (steps > 0) load<false>(first, begin + member);
        else load<true>(first, begin + member);
    }

    /// Multiplies a slice whose first pieces are in `now`: whole steps, then what is left of one.
    __device__ __forceinline__ void multiply(Pieces& now) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int c = 0; c < kColumns; ++c) sums[r][c] = 0;
        int piece = begin + member;
        if constexpr (Config::kBuffers == 2) {
            for (int step = 0; step < steps; ++step, piece += kStep) {
                Pieces next;
                if (step + 1 < steps) load<false>(next, piece + kStep);
                add_products<false>(now, piece);
                copy(now, next);
            }
        } else {
#pragma unroll 1
            for (int step = 0; step < steps; ++step, piece += kStep) {
                add_products<false>(now, piece);
                if (step + 1 < steps) load<false>(now, piece + kStep);
            }
        }
        if (begin + steps * kStep < end) {
            if (steps > 0) load<true>(now, piece);
            add_products<true>(now, piece);
        }
    }

    template <bool kLast>
    __device__ __forceinline__ void load(Pieces& to, int piece) const {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int at = piece + u * R::kTeam;
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                if (kLast && at >= end) to[u][c].clear();
                else to[u][c].template stream<Config::kPrefetchBytes>(rows[c] + (long long)at * Config::kLoadBytes,
                                                                      args.hint_b);
            }
        }
    }

    __device__ __forceinline__ static void copy(Pieces& to, const Pieces& from) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int c = 0; c < kColumns; ++c) to[u][c] = from[u][c];
    }

    template <bool kLast>
    __device__ __forceinline__ void add_products(const Pieces& b, int piece) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int at = piece + u * R::kTeam;
            // Zeros of B would meet the bytes behind A, and zero times infinity is NaN.
            if (kLast && at >= end) continue;
            Operand a[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) a[r].load(piece_of_a(r, at));
            add_products_of(a, b[u]);
        }
    }

    __device__ __forceinline__ const unsigned char* piece_of_a(int row, int piece) const {
        if constexpr (kStages) return staged + row * args.a_pitch + (piece - begin) * Config::kLoadBytes;
        else return product_of_a() + row * args.row_bytes + (long long)piece * Config::kLoadBytes;
    }

    __device__ __forceinline__ void add_products_of(const Operand (&a)[kRows], const Operand (&b)[kColumns]) {
#pragma unroll
        for (int w = 0; w < Operand::kWords; ++w) {
            if constexpr (Config::kIntegers) {
                constexpr bool kSignedA = Config::kElementA == Input::kInt8, kSignedB = Config::kElementB == Input::kInt8;
#pragma unroll
                for (int r = 0; r < kRows; ++r)
#pragma unroll
                    for (int c = 0; c < kColumns; ++c)
                        sums[r][c] = dp4a<kSignedA, kSignedB>(a[r].words[w], b[c].words[w], sums[r][c]);
            } else {
                float of_b[kColumns][kPerWord];
#pragma unroll
                for (int c = 0; c < kColumns; ++c) unpack<Config::kElementB>(b[c].words[w], of_b[c]);
#pragma unroll
                for (int r = 0; r < kRows; ++r) {
                    float of_a[kPerWord];
                    unpack<Config::kElementA>(a[r].words[w], of_a);
#pragma unroll
                    for (int c = 0; c < kColumns; ++c)
#pragma unroll
                        for (int i = 0; i < kPerWord; ++i) sums[r][c] = fmaf(of_a[i], of_b[c][i], sums[r][c]);
                }
            }
        }
    }

    // ---------------------------------------------------------------------------------------- the sums

    /// Leaves the sums over the team's lanes of this warp in each of these lanes.
    __device__ __forceinline__ void add_lanes() {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
#pragma unroll
                for (int away = Config::kLanes / 2; away > 0; away /= 2)
                    sums[r][c] += __shfl_xor_sync(0xFFFFFFFF, sums[r][c], away);
    }

    /// The team's lanes take the elements of its columns in turn.
    template <class Take>
    __device__ __forceinline__ void share_out(Take take) const {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
                if (lane == (r * kColumns + c) % Config::kLanes) take(r, c);
    }

    __device__ __forceinline__ void write() const {
        share_out([&](int r, int c) { write_element(r, column + c, sums[r][c]); });
    }

    __device__ __forceinline__ void write_element(int row, int at_column, Acc sum) const {
        using F = Finish<Config>;
        if (at_column >= args.n) return;
        const F finish{args, batch};
        const auto pair = finish.pair(sum, sum, row, at_column);
        typename F::Element first;
        if constexpr (sizeof(first) == 4) first = pair.x;
        else first = static_cast<typename F::Element>(pair);
        static_cast<typename F::Element*>(args.c)[finish.at(row, at_column)] = first;
    }

    /// Adds up the sums of each team's warps, and of all blocks where K is split over them.
    __device__ __forceinline__ void gather(int tile) {
        const int part = warp % Config::kSplitWarps;
        share_out([&](int r, int c) {
            reduction.sums[part][r * R::kTileN + group * kColumns + c] = sums[r][c];
        });
        __syncthreads();
        const int first_column = column - group * kColumns;
        if constexpr (Config::kSplits) {
            if (store_slice(tile)) {
                for (int i = threadIdx.x; i < R::kOutputs; i += R::kThreads) {
                    write_element(i / R::kTileN, first_column + i % R::kTileN, sum_of_slices(tile, i));
                }
            }
        } else {
            for (int i = threadIdx.x; i < R::kOutputs; i += R::kThreads) {
                write_element(i / R::kTileN, first_column + i % R::kTileN, sum_of_warps(i));
            }
        }
        // The next tile's sums go to the same places.
        __syncthreads();
    }

    __device__ __forceinline__ Acc sum_of_warps(int i) const {
        Acc sum = 0;
#pragma unroll
        for (int part = 0; part < Config::kSplitWarps; ++part) sum += reduction.sums[part][i];
        return sum;
    }

    /// Number of the tile without its slice: its place in the workspace.
    __device__ __forceinline__ int whole_tile(int tile) const {
        const int within = tile - batch * int(args.product.divisor);
        return batch * int(args.slice.divisor) + within - split * int(args.slice.divisor);
    }

    __device__ __forceinline__ Acc* place_of(int tile, int slice) const {
        const long long at = (long long)whole_tile(tile) * args.splits.divisor + slice;
        return reinterpret_cast<Acc*>(args.partials) + at * R::kOutputs;
    }

    /// Stores this slice's sums; returns whether this is the tile's last block to do so.
    __device__ __forceinline__ bool store_slice(int tile) {
        Acc* const mine = place_of(tile, split);
        for (int i = threadIdx.x; i < R::kOutputs; i += R::kThreads) __stcg(mine + i, sum_of_warps(i));
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            Semaphore& semaphore = args.semaphores[whole_tile(tile)];
            const bool is_last = atomicAdd(&semaphore.arrived, u64(1)) + 1 == args.splits.divisor;
            if (is_last) semaphore.arrived = 0;
            reduction.last = is_last;
            __threadfence();
        }
        __syncthreads();
        return reduction.last != 0;
    }

    __device__ __forceinline__ Acc sum_of_slices(int tile, int i) const {
        Acc sum = 0;
        for (int slice = 0; slice < int(args.splits.divisor); ++slice) sum += __ldcg(place_of(tile, slice) + i);
        return sum;
    }
};
