// Copies of operands into the ring: every thread copies groups of 16 bytes, a few after each step of the products.
#pragma once

#include "common/types.cuh"
#include "mma_sync/arguments.cuh"
#include "mma_sync/shape.cuh"
#include "ptx/cp_async.cuh"

/// One thread's share of one operand, stage after stage. What lies outside the operand becomes 0.
///
/// `kCopyBytes` is the widest copy that the operand's lines are aligned to; they consist of such copies, or are
/// `kRagged`. Copies of 4, 8 and 16 bytes are asynchronous; narrower ones pass through registers, element by element.
template <class Op, int kThreads, int kCopyBytes, bool kRagged, int kPrefetchBytes>
struct OperandCopy {
    static constexpr int kElementBytes = Op::kElementBytes;
    /// Lines from one group of this thread to its next; its groups of a span, the last of which not every thread has;
    /// and those of all spans.
    static constexpr int kLineStep = kThreads / Op::kGroups;
    static constexpr int kPerSpan = ceil_div(Op::kLines, kLineStep);
    static constexpr int kCount = Op::kSpans * kPerSpan;
    /// Up to so many copies are unrolled.
    static constexpr int kMostTogether = 16;
    static_assert(kThreads % Op::kGroups == 0, "a thread always copies the same group of its lines");
    static_assert(kCopyBytes % kElementBytes == 0 && kGroupBytes % kCopyBytes == 0, "whole elements");
    /// Lines after which the swizzle repeats.
    static constexpr int kSwizzleLines = 8;

    const unsigned char* from;  // this thread's group of its first line, in the stage that is copied next
    long long pitch;
    int line;   // this thread's first line
    u32 place;  // in the tile, of its group there
    int lines;  // of the operand, from `line` on
    int along;  // bytes of a line of the operand, from this thread's group on

    /// `row` is the tile's first of `rows` of M or N, `k` the first element of `depth` of K.
    __device__ __forceinline__ OperandCopy(const void* base, long long pitch_, int row, int rows, int k, int depth)
        : pitch(pitch_), line(threadIdx.x / Op::kGroups), place(Op::place(line, threadIdx.x % Op::kGroups)) {
        const int group = threadIdx.x % Op::kGroups;
        const int first_line = (Op::kMnMajor ? k : row) + line, first = Op::kMnMajor ? row : k;
        lines = (Op::kMnMajor ? depth : rows) - first_line;
        along = ((Op::kMnMajor ? rows : depth) - first) * kElementBytes - group * kGroupBytes;
        from = static_cast<const unsigned char*>(base) + first_line * pitch + (long long)first * kElementBytes +
               group * kGroupBytes;
    }

    /// Copies groups `kBegin` to `kEnd` of this thread into the tile `to`, if they are wanted.
    template <int kBegin, int kEnd>
    __device__ __forceinline__ void copy(unsigned char* to, bool wanted) const {
        // Stepped, not multiplied: the compiler would keep every product for the next stage, for lack of registers in
        // local memory.
        const long long step = kLineStep * pitch;
        const unsigned char* at = from + kBegin % kPerSpan * step;
        // Many copies, or many pieces of each, take too many registers side by side.
        constexpr int kTogether = kCopyBytes < kGroupBytes ? 1 : kEnd - kBegin > kMostTogether ? 4 : kMostTogether;
#pragma unroll(kTogether)
        for (int i = kBegin; i < kEnd; ++i) {
            const int span = i / kPerSpan, ahead = i % kPerSpan * kLineStep;
            if (i > kBegin) at = ahead == 0 ? from : at + step;
            const bool in_tile = kPerSpan * kLineStep <= Op::kLines || line + ahead < Op::kLines;
            const int left = along - span * Op::kSpanBytes;
            copy_group(to + place_of(span * Op::kLines + ahead), at + span * Op::kSpanBytes, wanted && in_tile,
                       ahead < lines, left);
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
    /// Where this thread's group lies `ahead` lines after its first one.
    __device__ __forceinline__ u32 place_of(int ahead) const {
        if constexpr (kLineStep % kSwizzleLines == 0) return place + ahead * Op::kSpanBytes;
        else return Op::place(line + ahead, threadIdx.x % Op::kGroups);
    }

    /// Copies one group of a line, of which `left` bytes remain.
    __device__ __forceinline__ static void copy_group(unsigned char* to, const unsigned char* at, bool wanted,
                                                      bool line_inside, int left) {
        if constexpr (kRagged) {
            static_assert(kCopyBytes == kGroupBytes, "lines of packed operands start at whole groups");
            cp_async_cg_first(smem_address(to), at, wanted, line_inside ? min(max(left, 0), kGroupBytes) : 0);
        } else if constexpr (kCopyBytes == kGroupBytes) {
            cp_async_cg<kPrefetchBytes>(smem_address(to), at, wanted, line_inside && left > 0);
        } else if constexpr (kCopyBytes >= 4) {
#pragma unroll
            for (int byte = 0; byte < kGroupBytes; byte += kCopyBytes) {
                cp_async_ca<kCopyBytes>(smem_address(to + byte), at + byte, wanted, line_inside && left > byte);
            }
        } else if (wanted) {
            *reinterpret_cast<uint4*>(to) = gathered(at, line_inside ? left : 0);
        }
    }

    __device__ __forceinline__ static uint4 gathered(const unsigned char* at, int left) {
        u32 words[4];
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            words[word] = 0;
#pragma unroll
            for (int byte = 0; byte < 4; byte += kElementBytes) {
                const unsigned char* const element = at + 4 * word + byte;
                if (4 * word + byte >= left) continue;
                words[word] |= (kElementBytes == 2 ? *reinterpret_cast<const u16*>(element) : *element) << 8 * byte;
            }
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
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

    /// Copies part `kPart` of `kParts` of the next stage.
    template <int kPart, int kParts>
    __device__ __forceinline__ void part() {
        auto& to = smem.stages[stage];
        a.template copy<CopyA::kCount * kPart / kParts, CopyA::kCount*(kPart + 1) / kParts>(to.a, left > 0);
        b.template copy<CopyB::kCount * kPart / kParts, CopyB::kCount*(kPart + 1) / kParts>(to.b, left > 0);
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
