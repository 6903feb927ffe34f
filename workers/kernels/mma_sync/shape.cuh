// Constants that follow from a Config: how tiles are cut over warps, and how operands lie in shared memory.
#pragma once

#include "common/accumulator.cuh"
#include "common/finish.cuh"
#include "common/fragment.cuh"
#include "common/swizzle.cuh"
#include "common/types.cuh"
#include "ptx/tid.cuh"

/// One mma.sync: rows of A, columns of B, and bytes of K whatever the dtype: k8 of tf32, k16 of 16 bits, k32 of 8 bits.
constexpr int kInstructionM = 16;
constexpr int kInstructionN = 8;
constexpr int kInstructionKBytes = 32;
/// Bytes of a row of an 8x8 matrix; copies and swizzles keep them together.
constexpr int kGroupBytes = 16;
/// Bytes of a register, and of a bank.
constexpr int kWordBytes = 4;
/// Bytes after which every swizzle of TMA repeats; it applies it to addresses, not to offsets in a tile.
constexpr int kSwizzleBytes = 1024;

/// Who copies operands into the ring: every thread by cp.async, or one thread of a producer by TMA.
enum class Copies { kCpAsync, kTma };

/// One operand tile in shared memory: `kRows` of M or N by `kDepth` of K, in lines of `kSpanBytes`.
///
/// K-major: a line holds consecutive K of one row. MN-major: a line holds consecutive rows of one k. Where a row of the
/// tile is longer than a span, the spans follow one another, all lines of the first before those of the second. Within
/// a line, groups of 16 bytes are swizzled so that eight consecutive lines have the same group in different banks; of
/// MN-major words, pairs of groups so that four consecutive lines have the same pair in different banks.
template <int kRows_, int kDepth_, int kElementBytes_, bool kMnMajor_, bool kSwizzled_>
struct Operand {
    static constexpr int kRows = kRows_;
    static constexpr int kDepth = kDepth_;
    static constexpr int kElementBytes = kElementBytes_;
    static constexpr bool kMnMajor = kMnMajor_;
    static constexpr int kAlongBytes = (kMnMajor ? kRows : kDepth) * kElementBytes;
    static constexpr int kSpanBytes = kAlongBytes % 128 == 0  ? 128
                                      : kAlongBytes % 64 == 0 ? 64
                                      : kAlongBytes % 32 == 0 ? 32
                                                              : 16;
    static constexpr int kSpans = kAlongBytes / kSpanBytes;
    /// Lines of one span, and groups of one line.
    static constexpr int kLines = kMnMajor ? kDepth : kRows;
    static constexpr int kGroups = kSpanBytes / kGroupBytes;
    static constexpr int kTileBytes = kSpans * kLines * kSpanBytes;
    static constexpr int kChunks = kTileBytes / kGroupBytes;

    static_assert(kAlongBytes % kGroupBytes == 0, "whole groups of 16 bytes");
    static_assert(kLines % 8 == 0, "a span holds whole 8x8 matrices");
    static_assert(!kMnMajor || kElementBytes > 1, "ldmatrix transposes 16-bit elements, and 32-bit ones are words");

    /// Byte offset in the tile of group `group` of line `line`; lines of all spans are counted through.
    __device__ __forceinline__ static u32 place(int line, int group) {
        // Lanes read the eight words of a pair of groups of four lines at once. The place of a pair depends on the line
        // modulo 4 alone: both halves of K of a step have one address, and the loads no bank conflicts.
        if constexpr (kMnMajor && kElementBytes == sizeof(u32) && kSwizzled_) {
            const u32 plain = line * kSpanBytes + group * kGroupBytes;
            return plain ^ (plain >> 7 & (kGroups / 2 - 1)) * (2 * kGroupBytes);
        }
        return kSwizzled_ ? swizzled<kSpanBytes>(line, group) : u32(line * kSpanBytes + group * kGroupBytes);
    }
};

template <class Config>
struct Shape {
    static constexpr int kWarpsM = Config::kWarpsM;
    static constexpr int kWarpsN = Config::kWarpsN;
    static constexpr bool kTma = Config::kCopies == Copies::kTma;
    /// Threads that multiply; those of a producer follow them.
    static constexpr int kThreads = kWarpSize * kWarpsM * kWarpsN;
    /// A warp's part of the tile, in rows, columns, and instructions.
    static constexpr int kWarpM = Config::kTileM / kWarpsM;
    static constexpr int kWarpN = Config::kTileN / kWarpsN;
    static constexpr int kBlocksM = kWarpM / kInstructionM;
    static constexpr int kBlocksN = kWarpN / kInstructionN;

    using A = Operand<Config::kTileM, Config::kTileK, Config::kElementBytes, Config::kAMnMajor != 0,
                      Config::kSwizzle != 0>;
    using B = Operand<Config::kTileN, Config::kTileK, Config::kElementBytes, Config::kBMnMajor != 0,
                      Config::kSwizzle != 0>;
    static constexpr int kStageBytes = A::kTileBytes + B::kTileBytes;
    static constexpr int kRingBytes = Config::kStages * kStageBytes;
    /// Instructions along K of a stage.
    static constexpr int kSteps = Config::kTileK * Config::kElementBytes / kInstructionKBytes;

    static_assert(Config::kThreads == kThreads + Config::kProducerThreads,
                  "space/families/mma_sync/derive.py says otherwise");
    static_assert(kTma ? Config::kProducerThreads > 0 : Config::kProducerThreads == 0, "TMA is driven by a producer");
    static_assert(!kTma || (A::kTileBytes % kSwizzleBytes == 0 && B::kTileBytes % kSwizzleBytes == 0),
                  "tiles start where swizzles do");
    static_assert(Config::kTileM % (kWarpsM * kInstructionM) == 0, "a warp owns whole instructions of rows");
    static_assert(Config::kTileN % (kWarpsN * kInstructionN) == 0, "a warp owns whole instructions of columns");
    static_assert(Config::kTileK * Config::kElementBytes % (2 * kInstructionKBytes) == 0,
                  "the step before the last of a stage waits for the next stage");
    static_assert(Config::kStages >= 2, "one stage arrives while another is multiplied");
    static_assert(!Config::kRowsAnywhere || (output_bytes(Config::kOutput) == 2 && !Config::kSwapAb),
                  "16-bit elements of a row are shifted");
};

/// What the warps of a block tell one another.
template <int kStages, bool kTma>
struct Flags {
    /// Split-K: the slices whose shares this block fixes up, a bit per slice.
    alignas(16) u32 shares;
};
template <int kStages>
struct Flags<kStages, true> : Flags<kStages, false> {
    /// A stage's bytes have arrived; all warps have read it.
    u64 full[kStages], empty[kStages];
};

/// Shared memory of one block: a ring of stages, each a tile of A and a tile of B.
template <class Config>
struct SharedMemory {
    struct Stage {
        unsigned char a[Shape<Config>::A::kTileBytes];
        unsigned char b[Shape<Config>::B::kTileBytes];
    };
    alignas(128) Stage stages[Config::kStages];
    Flags<Config::kStages, Shape<Config>::kTma> flags;
};

/// A part of a tile is a whole tile: its warps store, exchange and fix up together, each its own rows and columns.
template <class Config>
struct Fragment {
    static constexpr int kThreads = Shape<Config>::kThreads;
    static constexpr int kBlocks = Shape<Config>::kBlocksM;
    static constexpr int kBlockRows = kInstructionM;
    static constexpr int kColumns = Shape<Config>::kWarpN;
    using Block = Accumulator<Config>[4 * Shape<Config>::kBlocksN];
    using Accumulators = Block[kBlocks];

    __device__ __forceinline__ static int thread() {
        // ptxas spills what lives across setmaxnreg, though the consumers then have registers to spare.
        if constexpr (Shape<Config>::kTma) return tid_x();
        else return threadIdx.x;
    }
    /// Callers give the first row of the warp's own part.
    __device__ __forceinline__ static int warp_row() { return 0; }
};
