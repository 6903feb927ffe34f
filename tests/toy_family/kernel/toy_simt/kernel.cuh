// C = A·B on the CUDA cores: a block stages tiles of A and B as f32, a thread adds up 4 x 4 elements of C.
#pragma once

#include "common/finish.cuh"
#include "common/types.cuh"
#include "ptx/convert.cuh"

enum class ToyInput { kBf16, kFp16 };

struct ToyArguments : GemmArguments {
    const u16* a;
    const u16* b;
    int k;
};

template <class Config>
struct Toy {
    static constexpr int kRows = 4;
    static constexpr int kColumnsOfThreads = Config::kTileN / kRows;
    // One word more a row, so that neighbouring rows lie in other banks.
    static constexpr int kPitch = Config::kTileK + 1;
    static_assert(Config::kThreads == Config::kTileM * Config::kTileN / (kRows * kRows), "a thread owns 4 x 4 elements");
    static_assert(Config::kSharedMemoryBytes == 4 * (Config::kTileM + Config::kTileN) * kPitch, "as launched");

    float* smem;
    const ToyArguments& args;

    __device__ void run() {
        float* a = smem;
        float* b = smem + Config::kTileM * kPitch;
        const int across = ceil_div(args.n, Config::kTileN), down = ceil_div(args.m, Config::kTileM);
        const int tile = int(blockIdx.x) % (across * down), batch = int(blockIdx.x) / (across * down);
        const int row = tile / across * Config::kTileM, column = tile % across * Config::kTileN;
        const int thread_row = int(threadIdx.x) / kColumnsOfThreads, thread_column = int(threadIdx.x) % kColumnsOfThreads;
        float sums[kRows][kRows] = {};
        for (int from = 0; from < args.k; from += Config::kTileK) {
            stage(a, args.a + (long long)batch * args.m * args.k, row, args.m, Config::kTileM, from);
            stage(b, args.b + (long long)batch * args.n * args.k, column, args.n, Config::kTileN, from);
            __syncthreads();
#pragma unroll 2
            for (int k = 0; k < Config::kTileK; ++k) {
                for (int i = 0; i < kRows; ++i) {
                    for (int j = 0; j < kRows; ++j) {
                        sums[i][j] += a[(thread_row * kRows + i) * kPitch + k] * b[(thread_column * kRows + j) * kPitch + k];
                    }
                }
            }
            __syncthreads();
        }
        const Finish<Config> finish{args, batch};
        for (int i = 0; i < kRows; ++i) {
            for (int j = 0; j < kRows; j += 2) {
                store(finish, row + thread_row * kRows + i, column + thread_column * kRows + j, sums[i][j], sums[i][j + 1]);
            }
        }
    }

private:
    /// Lines of one operand along K, zero beyond its extents.
    __device__ void stage(float* to, const u16* from, int first, int lines, int count, int k) const {
        for (int place = int(threadIdx.x); place < count * Config::kTileK; place += Config::kThreads) {
            const int line = place / Config::kTileK, along = place % Config::kTileK;
            const bool inside = first + line < lines && k + along < args.k;
            to[line * kPitch + along] = inside ? value(from[(long long)(first + line) * args.k + k + along]) : 0.0f;
        }
    }

    __device__ static float value(u16 bits) {
        return Config::kInput == ToyInput::kBf16 ? cvt_f32(bits) : cvt_f32_f16(bits);
    }

    __device__ void store(const Finish<Config>& finish, int row, int column, float low, float high) const {
        using Element = typename Finish<Config>::Element;
        if (row >= args.m || column >= args.n) return;
        const auto pair = finish.pair(low, high, row, column);
        Element elements[2];
        memcpy(elements, &pair, sizeof pair);
        Element* to = static_cast<Element*>(args.c) + finish.at(row, column);
        to[0] = elements[0];
        if (column + 1 < args.n) to[1] = elements[1];
    }
};
