// Constants that follow from a Config: how tiles are cut, laid out and shared.
#pragma once

#include "common/accumulator.cuh"
#include "common/finish.cuh"
#include "common/fragment.cuh"
#include "common/types.cuh"

enum class Schedule { kCooperative, kPingpong, kMultistage };
enum class Epilogue { kDirect, kTma, kTmaHalf };
enum class ASource { kSmem, kRegisters };

/// Bytes of K that one wgmma takes, whatever the dtype: k8 of tf32, k16 of 16 bits, k32 of 8 bits.
constexpr int kInstructionKBytes = 32;
/// Rows of one wgmma.
constexpr int kInstructionM = 64;

/// One operand tile in shared memory: `kRows` of M or N by `kDepth` of K.
///
/// K-major: cut along K into spans of the swizzle, each [rows][span bytes]. MN-major: cut along M or N into
/// spans, each [depth][span bytes]; the last may reach past the tile. A span of 16 bytes is not swizzled.
template <int kRows_, int kDepth_, int kElementBytes, int kSwizzle, bool kMnMajor_, int kSharers_>
struct Operand {
    static constexpr int kRows = kRows_;
    static constexpr int kDepth = kDepth_;
    static constexpr bool kMnMajor = kMnMajor_;
    /// Blocks of the cluster that share this tile: each loads a slice and multicasts it.
    static constexpr int kSharers = kSharers_;
    static constexpr int kSpanBytes = kSwizzle == 0 ? 16 : kSwizzle;
    static constexpr int kSpan = kSpanBytes / kElementBytes;
    static constexpr int kSpans = ceil_div(kMnMajor ? kRows : kDepth, kSpan);
    /// Lines of a span, and of a block's slice of it; a line is `kSpanBytes` long.
    static constexpr int kLines = kMnMajor ? kDepth : kRows;
    static constexpr int kSlice = kLines / kSharers;
    static constexpr int kTileBytes = kSpans * kLines * kSpanBytes;

    static_assert(kMnMajor || kDepth % kSpan == 0, "whole swizzle spans in a stage");
    static_assert(kLines % (8 * kSharers) == 0, "a multicast slice is whole 8-line swizzle patterns");
    static_assert(kSlice <= 256, "a TMA box has at most 256 lines");
    static_assert(!kMnMajor || kElementBytes == 2, "only 16-bit operands may be MN-major");
};

template <class Config>
struct Shape {
    static constexpr bool kPingpong = Config::kSchedule == Schedule::kPingpong;
    static constexpr bool kSpecialised = Config::kSchedule != Schedule::kMultistage;
    /// Whether clusters load in step: large tiles, each multiplied whole by one cluster, and a producer, whose wait holds
    /// up no product.
    static constexpr bool kInStep = Config::kTileM * Config::kTileN >= 128 * 128 && Config::kSplits == 0 &&
                                    Config::kClusterK == 1 && Config::kStreamK == 0 && kSpecialised;
    /// Whether they meet when a stage is free, instead of before they wait for it: clusters get in step if what is loaded
    /// ahead lasts 2 to 3 us, and no longer. An SM multiplies 32,768 elements of C by a stage of K in 0.7 us.
    static constexpr bool kMeetsWhenFree =
        Config::kStages >= 4 && (Config::kStages - 1) * Config::kTileM * Config::kTileN >= 3 * 128 * 256;
    static constexpr int kConsumers = Config::kConsumerWarpgroups;
    static constexpr int kClusterSize = Config::kClusterM * Config::kClusterN * Config::kClusterK;
    /// Whether blocks of a cluster load for one another; blocks along K share only the tile.
    static constexpr bool kMulticasts = Config::kClusterM * Config::kClusterN > 1;
    /// Warpgroups that work on one tile together, and the rows that each of them owns.
    static constexpr int kTeam = kPingpong ? 1 : kConsumers;
    static constexpr int kRows = Config::kTileM / kTeam;
    static constexpr int kBlocks = kRows / kInstructionM;
    static constexpr int kInstructions = Config::kInstructionsN;
    static constexpr int kAccumulators = Config::kTileN / 2;  // of one m64 block, a thread

    using A = Operand<Config::kTileM, Config::kTileK, Config::kElementBytes, Config::kSwizzleA,
                      Config::kAMnMajor != 0, Config::kClusterN>;
    using B = Operand<Config::kTileN, Config::kTileK, Config::kElementBytes, Config::kSwizzleB,
                      Config::kBMnMajor != 0, Config::kClusterM>;
    static constexpr int kStageBytes = A::kTileBytes + B::kTileBytes;

    static constexpr int kOutputBytes = output_bytes(Config::kOutput);
    /// Columns of C that are staged at a time by the TMA epilogues; halves of an odd number of groups overlap by one.
    static constexpr int kStagedColumns = Config::kEpilogue == Epilogue::kDirect ? 0
                                          : Config::kEpilogue == Epilogue::kTma  ? Config::kTileN
                                                                                 : ceil_div(Config::kTileN, 16) * 8;
    /// Groups of eight columns of m64 blocks that a warpgroup owns, and how many of them one block of a cluster along K
    /// writes.
    static constexpr int kGroups = kBlocks * Config::kTileN / 8;
    static constexpr int kShareGroups = ceil_div(kGroups, Config::kClusterK);
    /// One consumer's part of the staged C, or of the sums that a cluster along K exchanges.
    static constexpr int kPartBytes = Config::kClusterK > 1 ? Config::kClusterK * kShareGroups * kInstructionM * 8 * 4
                                                            : kRows * kStagedColumns * kOutputBytes;
    static constexpr int kStagedBytes = kConsumers * kPartBytes;

    static_assert(Config::kTileM % (kInstructionM * kTeam) == 0, "each consumer owns whole m64 blocks");
    static_assert(!kPingpong || kConsumers == 2, "ping-pong takes two consumers");
    static_assert(Config::kInstructionN % 8 == 0 && Config::kInstructionN <= 256, "N of wgmma");
    static_assert(Config::kTileN == Config::kInstructionsN * Config::kInstructionN, "whole instructions across the tile");
    static_assert(kInstructions == 1 || !B::kMnMajor || Config::kInstructionN % B::kSpan == 0,
                  "an instruction starts at a span of MN-major B");
    static_assert(Config::kTileK * Config::kElementBytes % kInstructionKBytes == 0, "whole k steps in a stage");
    static_assert(Config::kStages >= 2, "a stage is released one step late");
    static_assert(Config::kThreads == kWarpgroupSize * (kConsumers + (kSpecialised ? 1 : 0)), "warpgroups");
    static_assert(Config::kASource == ASource::kSmem || (!A::kMnMajor && Config::kSwizzleA != 0),
                  "ldmatrix reads K-major swizzled rows");
    static_assert(!Config::kRowsAnywhere || (kOutputBytes == 2 && !Config::kSwapAb), "16-bit elements of a row are shifted");
    static_assert(Config::kClusterK == 1 || (!kMulticasts && !kPingpong && Config::kSplits == 0),
                  "a cluster along K has no other extent, and one tile");
    static_assert(!Config::kStreamK || (Config::kClusterK == 1 && Config::kSplits == 0), "a tile's K is cut in only one way");
    static_assert(!Config::kStreamK || (kPingpong && Config::kEpilogue == Epilogue::kDirect),
                  "a shared tile leaves by direct stores while the other consumer multiplies");
    static_assert(Config::kClusterK == 1 || Config::kEpilogue == Epilogue::kDirect, "shares leave by direct stores");
    static_assert(Config::kEpilogue == Epilogue::kDirect || kOutputBytes != 1, "8-bit C leaves by direct stores");
    static_assert(Config::kEpilogue == Epilogue::kDirect || !Config::kSwapAb || kOutputBytes == 2,
                  "a swapped tile is staged by stmatrix, which moves 16-bit elements");
};

/// A part of a tile: the rows that one consumer warpgroup owns.
template <class Config>
struct Fragment {
    static constexpr int kThreads = kWarpgroupSize;
    static constexpr int kBlocks = Shape<Config>::kBlocks;
    static constexpr int kBlockRows = kInstructionM;
    static constexpr int kColumns = Config::kTileN;
    using Block = Accumulator<Config>[Shape<Config>::kAccumulators];
    using Accumulators = Block[kBlocks];

    __device__ __forceinline__ static int thread() { return threadIdx.x % kWarpgroupSize; }
    __device__ __forceinline__ static int warp_row() { return 16 * (threadIdx.x / kWarpSize % 4); }
};
