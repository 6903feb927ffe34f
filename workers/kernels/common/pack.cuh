// Copies an operand whose layout a kernel can't take into K-major rows that start at whole L2 lines.
#pragma once

#include "common/types.cuh"

constexpr int kPackThreads = 256;

/// Mirrored byte for byte by `PackJob` in workers/cuda/families/packing.py. Extents and pitches are in elements.
struct PackJob {
    const void* from;  // [batch][rows][depth], or [batch][depth][rows] where it is transposed
    void* to;          // [batch][rows][pitch]
    int rows, depth;
    int pitch;
    int batch;
    int transposed;
    int padding;
};

template <int kElementBytes>
struct ElementOf;
template <>
struct ElementOf<1> {
    using Type = unsigned char;
};
template <>
struct ElementOf<2> {
    using Type = u16;
};
template <>
struct ElementOf<4> {
    using Type = u32;
};

/// Chunks of 16 bytes of one row that a warp copies before it moves on.
constexpr int kPackChunks = 256;

/// The 16 bytes at `at` of an operand of `end` bytes, assembled from the words or vectors that they straddle; bytes
/// beyond the operand are 0.
__device__ __forceinline__ uint4 unaligned_chunk(u64 base, long long at, long long end) {
    const u32 offset = u32(base + at) % 16;
    const long long first = at - offset;
    u32 words[8];
    if (first >= 0 && first + 32 <= end) {
        const uint4* const vectors = reinterpret_cast<const uint4*>(base + first);
        const uint4 low = __ldg(vectors), high = __ldg(vectors + 1);
        words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
        words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
    } else {
        // An operand starts and ends at a whole element, not at a whole word.
#pragma unroll
        for (int w = 0; w < 8; ++w) {
            words[w] = 0;
            for (int byte = 0; byte < 4; ++byte) {
                const long long place = first + 4 * w + byte;
                if (place < 0 || place >= end) continue;
                words[w] |= u32(__ldg(reinterpret_cast<const unsigned char*>(base + place))) << 8 * byte;
            }
        }
    }
#pragma unroll
    for (int w = 0; w < 6; ++w) words[w] = offset & 8 ? words[w + 2] : words[w];
#pragma unroll
    for (int w = 0; w < 5; ++w) words[w] = offset & 4 ? words[w + 1] : words[w];
    const u32 shift = offset % 4 * 8;
    return make_uint4(__funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
                      __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], words[4], shift));
}

/// Rows stay rows: 16 bytes per thread, a stretch of a row per warp. The last 16 bytes of a row may end in bytes that
/// merely follow in memory: TMA reads only `depth` elements.
template <int kElementBytes>
__device__ __forceinline__ void pack_rows(const PackJob& job) {
    const long long row_bytes = (long long)job.depth * kElementBytes;
    const long long rows = (long long)job.batch * job.rows;
    const long long end = rows * row_bytes;
    const int chunks = int((row_bytes + 15) / 16), pitch = job.pitch * kElementBytes / 16;
    const int stretches = ceil_div(chunks, kPackChunks);
    const u64 base = reinterpret_cast<u64>(job.from);
    const long long warps = (long long)gridDim.x * (kPackThreads / kWarpSize);
    const long long warp = (blockIdx.x * (long long)kPackThreads + threadIdx.x) / kWarpSize;
    for (long long i = warp; i < rows * stretches; i += warps) {
        const long long row = i / stretches;
        const int begin = int(i - row * stretches) * kPackChunks;
        const int stop = min(begin + kPackChunks, chunks);
        uint4* const to = static_cast<uint4*>(job.to) + row * pitch;
#pragma unroll 4
        for (int chunk = begin + threadIdx.x % kWarpSize; chunk < stop; chunk += kWarpSize) {
            to[chunk] = unaligned_chunk(base, row * row_bytes + chunk * 16ll, end);
        }
    }
}

/// Columns become rows, a square of 64 at a time, through shared memory.
template <int kElementBytes>
__device__ __forceinline__ void pack_columns(const PackJob& job) {
    using Element = typename ElementOf<kElementBytes>::Type;
    constexpr int kSquare = 64;
    // The padding spreads a column of the square across all banks.
    __shared__ Element square[kSquare][kSquare + 4 / kElementBytes];
    const int across = ceil_div(job.rows, kSquare), down = ceil_div(job.depth, kSquare);
    const long long count = (long long)job.batch * across * down;
    const int x = threadIdx.x % kSquare, y = threadIdx.x / kSquare;
    for (long long i = blockIdx.x; i < count; i += gridDim.x) {
        const long long product = i / (across * down);
        const int place = int(i - product * across * down);
        const int row = place % across * kSquare, k = place / across * kSquare;
        const Element* const from = static_cast<const Element*>(job.from) + product * job.rows * job.depth;
        Element* const to = static_cast<Element*>(job.to) + product * job.rows * job.pitch;
#pragma unroll 4
        for (int line = y; line < kSquare; line += kPackThreads / kSquare) {
            const bool inside = k + line < job.depth && row + x < job.rows;
            square[line][x] = inside ? from[(long long)(k + line) * job.rows + row + x] : Element(0);
        }
        __syncthreads();
#pragma unroll 4
        for (int line = y; line < kSquare; line += kPackThreads / kSquare) {
            const bool inside = row + line < job.rows && k + x < job.depth;
            if (inside) to[(long long)(row + line) * job.pitch + k + x] = square[x][line];
        }
        __syncthreads();
    }
}
