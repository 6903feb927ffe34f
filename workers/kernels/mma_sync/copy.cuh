// Copies of operands into the ring: every thread copies pieces of lines, a few after each step of the products.
#pragma once

#include "common/types.cuh"
#include "mma_sync/arguments.cuh"
#include "mma_sync/shape.cuh"
#include "ptx/cp_async.cuh"

/// One thread's share of one operand, stage after stage. What lies outside the operand becomes 0.
///
/// `kCopyBytes` is the widest copy that the operand's lines are aligned to; they consist of such copies, or are
/// `kRagged`. Copies of 4, 8 and 16 bytes are asynchronous; narrower ones pass through registers, from `fetch` to `store`.
/// Lanes side by side copy pieces side by side, so that narrow copies of a warp share lines of L1 and no banks.
template <class Op, int kThreads, int kCopyBytes, bool kRagged, int kPrefetchBytes>
struct OperandCopy {
    static constexpr int kElementBytes = Op::kElementBytes;
    static constexpr bool kAsync = kCopyBytes >= kWordBytes;
    /// What a thread copies at once, and such pieces of a line in a span.
    static constexpr int kPieceBytes = kAsync ? kCopyBytes : kWordBytes;
    static constexpr int kPieces = Op::kSpanBytes / kPieceBytes;
    /// Lines from one piece of this thread to its next; its pieces of a span, the last of which not every thread has;
    /// and those of all spans.
    static constexpr int kLineStep = kThreads / kPieces;
    static constexpr int kPerSpan = ceil_div(Op::kLines, kLineStep);
    static constexpr int kCount = Op::kSpans * kPerSpan;
    /// Up to so many copies are unrolled, and of more four: all take too many registers side by side.
    static constexpr int kMostTogether = kCopyBytes == kGroupBytes ? 16 : kCount > 16 ? 4 : 8;
    /// Loads of a piece that passes through registers.
    static constexpr int kLoads = kAsync ? 0 : kWordBytes / kCopyBytes;
    static_assert(kThreads % kPieces == 0, "a thread always copies the same piece of its lines");
    static_assert(kCopyBytes % kElementBytes == 0 && kGroupBytes % kCopyBytes == 0, "whole elements");
    /// Lines after which the swizzle repeats.
    static constexpr int kSwizzleLines = 8;

    const unsigned char* from;  // this thread's piece of its first line, in the stage that is copied next
    long long pitch;
    int line;   // this thread's first line
    u32 place;  // in the tile, of its piece there
    int lines;  // of the operand, from `line` on
    int along;  // bytes of a line of the operand, from this thread's piece on

    /// `row` is the tile's first of `rows` of M or N, `k` the first element of `depth` of K.
    __device__ __forceinline__ OperandCopy(const void* base, long long pitch_, int row, int rows, int k, int depth)
        : pitch(pitch_), line(threadIdx.x / kPieces), place(piece_at(line)) {
        const int piece = threadIdx.x % kPieces;
        const int first_line = (Op::kMnMajor ? k : row) + line, first = Op::kMnMajor ? row : k;
        lines = (Op::kMnMajor ? depth : rows) - first_line;
        along = ((Op::kMnMajor ? rows : depth) - first) * kElementBytes - piece * kPieceBytes;
        from = static_cast<const unsigned char*>(base) + first_line * pitch + (long long)first * kElementBytes +
               piece * kPieceBytes;
    }

    /// Pieces `kBegin` to `kEnd` of this thread between `fetch` and `store`.
    template <int kBegin, int kEnd>
    struct Held {
        u32 loads[kAsync || kEnd == kBegin ? 1 : (kEnd - kBegin) * kLoads];
    };

    /// Starts to copy pieces into the tile `to`, if they are wanted: asynchronously, or into registers.
    template <int kBegin, int kEnd>
    __device__ __forceinline__ void fetch(unsigned char* to, bool wanted, Held<kBegin, kEnd>& held) const {
        // Stepped, not multiplied: the compiler would keep every product for the next stage, for lack of registers in
        // local memory.
        const long long step = kLineStep * pitch;
        const unsigned char* at = from + kBegin % kPerSpan * step;
        constexpr int kTogether = kAsync && kEnd - kBegin > kMostTogether ? 4 : kEnd - kBegin;
#pragma unroll(kTogether)
        for (int i = kBegin; i < kEnd; ++i) {
            const int left = along - span_bytes(i);
            if (i > kBegin) at = ahead(i) == 0 ? from : at + step;
            const unsigned char* const piece = at + span_bytes(i);
            if constexpr (kAsync) {
                copy_async(to + place_of(i), piece, wanted && in_tile(i), ahead(i) < lines, left);
            } else {
                const bool inside = wanted && in_tile(i) && ahead(i) < lines;
#pragma unroll
                for (int load = 0; load < kLoads; ++load) {
                    const int byte = load * kCopyBytes;
                    held.loads[(i - kBegin) * kLoads + load] = inside && byte < left ? loaded(piece + byte) : 0;
                }
            }
        }
    }

    /// Stores what `fetch` has loaded into registers.
    template <int kBegin, int kEnd>
    __device__ __forceinline__ void store(unsigned char* to, bool wanted, const Held<kBegin, kEnd>& held) const {
        if constexpr (!kAsync) {
#pragma unroll
            for (int i = kBegin; i < kEnd; ++i) {
                u32 word = 0;
#pragma unroll
                for (int load = 0; load < kLoads; ++load) {
                    word |= held.loads[(i - kBegin) * kLoads + load] << 8 * load * kCopyBytes;
                }
                if (wanted && in_tile(i)) *reinterpret_cast<u32*>(to + place_of(i)) = word;
            }
        }
    }

    /// Moves on to the next stage.
    __device__ __forceinline__ void advance() {
        if constexpr (Op::kMnMajor) {
            from += Op::kDepth * pitch;
            lines -= Op::kDepth;
        } else {
            from += Op::kDepth * kElementBytes;
            along -= Op::kDepth * kElementBytes;
        }
    }

private:
    /// Where this thread's piece of line `at_line` lies.
    __device__ __forceinline__ static u32 piece_at(int at_line) {
        const int byte = threadIdx.x % kPieces * kPieceBytes;
        return Op::place(at_line, byte / kGroupBytes) + byte % kGroupBytes;
    }

    /// Bytes of a line before the span of piece `i`, and lines from this thread's first one to the piece's.
    __device__ static constexpr int span_bytes(int i) { return i / kPerSpan * Op::kSpanBytes; }
    __device__ static constexpr int ahead(int i) { return i % kPerSpan * kLineStep; }

    /// Where piece `i` lies in the tile.
    __device__ __forceinline__ u32 place_of(int i) const {
        const int within = ahead(i) % kSwizzleLines;
        const u32 first = within == 0 ? place : piece_at(line + within);
        return first + span_bytes(i) * Op::kLines + (ahead(i) - within) * Op::kSpanBytes;
    }

    /// Whether the tile has piece `i` of this thread.
    __device__ __forceinline__ bool in_tile(int i) const {
        return kPerSpan * kLineStep <= Op::kLines || line + ahead(i) < Op::kLines;
    }

    /// Copies one piece of a line, of which `left` bytes remain.
    __device__ __forceinline__ static void copy_async(unsigned char* to, const unsigned char* at, bool wanted,
                                                      bool line_inside, int left) {
        if constexpr (kRagged) {
            static_assert(kCopyBytes == kGroupBytes, "lines of packed operands start at whole groups");
            cp_async_cg_first(smem_address(to), at, wanted, line_inside ? min(max(left, 0), kGroupBytes) : 0);
        } else if constexpr (kCopyBytes == kGroupBytes) {
            cp_async_cg<kPrefetchBytes>(smem_address(to), at, wanted, line_inside && left > 0);
        } else {
            cp_async_ca<kCopyBytes>(smem_address(to), at, wanted, line_inside && left > 0);
        }
    }

    __device__ __forceinline__ static u32 loaded(const unsigned char* at) {
        return kCopyBytes == 2 ? *reinterpret_cast<const u16*>(at) : *at;
    }
};

/// Fills the ring of one tile, stage after stage, up to the tile's last.
template <class Config>
struct StageCopy {
    using S = Shape<Config>;
    using Smem = SharedMemory<Config>;
    using CopyA = OperandCopy<typename S::A, S::kThreads, Config::kCopyBytesA, Config::kRaggedA != 0,
                              Config::kPrefetchBytes>;
    using CopyB = OperandCopy<typename S::B, S::kThreads, Config::kCopyBytesB, Config::kRaggedB != 0,
                              Config::kPrefetchBytes>;

    static constexpr bool kAsync = CopyA::kAsync && CopyB::kAsync;
    /// Narrow copies have so many addresses that the first stages are not unrolled; and each is copied in parts, whose
    /// loads wait for memory together and are held in registers until then.
    static constexpr bool kNarrow = Config::kCopyBytesA < kGroupBytes || Config::kCopyBytesB < kGroupBytes;
    static constexpr int kFirstTogether = kNarrow ? 1 : Config::kStages;
    static constexpr int kMostHeld = 32;
    static constexpr int kFirstParts =
        kAsync ? 1 : ceil_div(CopyA::kCount * CopyA::kLoads + CopyB::kCount * CopyB::kLoads, kMostHeld);

    Smem& smem;
    CopyA a;
    CopyB b;
    int stage = 0;  // of the ring, to be filled next
    int left;       // stages of the tile to be copied

    __device__ __forceinline__ StageCopy(Smem& smem_, const MmaSyncArguments& args, const Tile& tile)
        : smem(smem_),
          a(at(args.a, tile.batch, args.batch_pitch_a), args.pitch_a, tile.m * Config::kTileM, args.m,
            tile.k * Config::kTileK, args.k),
          b(at(args.b, tile.batch, args.batch_pitch_b), args.pitch_b, tile.n * Config::kTileN, args.n,
            tile.k * Config::kTileK, args.k),
          left(tile.k_end - tile.k) {}

    /// Part `kPart` of `kParts` of a stage between `fetch` and `store`.
    template <int kPart, int kParts>
    struct Held {
        typename CopyA::template Held<CopyA::kCount * kPart / kParts, CopyA::kCount*(kPart + 1) / kParts> a;
        typename CopyB::template Held<CopyB::kCount * kPart / kParts, CopyB::kCount*(kPart + 1) / kParts> b;
    };

    /// Starts to copy a part of the next stage.
    template <int kPart, int kParts>
    __device__ __forceinline__ void fetch(Held<kPart, kParts>& held) {
        a.fetch(smem.stages[stage].a, left > 0, held.a);
        b.fetch(smem.stages[stage].b, left > 0, held.b);
    }

    /// Stores what passes through registers; the loads of a part wait for memory together.
    template <int kPart, int kParts>
    __device__ __forceinline__ void store(const Held<kPart, kParts>& held) {
        a.store(smem.stages[stage].a, left > 0, held.a);
        b.store(smem.stages[stage].b, left > 0, held.b);
    }

    /// Copies all of the next stage.
    template <int kPart = 0>
    __device__ __forceinline__ void all() {
        Held<kPart, kFirstParts> part;
        fetch(part);
        store(part);
        if constexpr (kPart + 1 < kFirstParts) all<kPart + 1>();
    }

    /// Ends a stage: its copies are one group. Past the tile's last stage groups are empty, so that a wait for all but
    /// the newest ones always means the same stage.
    __device__ __forceinline__ void commit() {
        cp_async_commit_group();
        a.advance();
        b.advance();
        stage = stage + 1 == Config::kStages ? 0 : stage + 1;
        --left;
    }

private:
    __device__ __forceinline__ static const void* at(const void* base, int batch, long long batch_pitch) {
        return static_cast<const unsigned char*>(base) + batch * batch_pitch;
    }
};
