// Copies an operand that TMA or wgmma can't take as it lies: into K-major rows that start at multiples of 16 bytes.
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

/// Rows stay rows: 16 bytes a thread, shifted out of the aligned words that they lie across. What follows a row's
/// last element in its last 16 bytes is whatever follows in memory: TMA reads `depth` elements only.
template <int kElementBytes>
__device__ __forceinline__ void pack_rows(const PackJob& job) {
    const long long row_bytes = (long long)job.depth * kElementBytes;
    const long long end = (long long)job.batch * job.rows * row_bytes;
    const int chunks = ceil_div(job.pitch * kElementBytes, 16);
    const long long count = (long long)job.batch * job.rows * chunks;
    const u64 base = reinterpret_cast<u64>(job.from);
    for (long long i = blockIdx.x * (long long)kPackThreads + threadIdx.x; i < count;
         i += (long long)gridDim.x * kPackThreads) {
        const long long row = i / chunks;
        const long long at = row * row_bytes + (i - row * chunks) * 16;
        const u32 shift = u32(base + at) % 4 * 8;
        const long long first = at - shift / 8;
        u32 words[5];
#pragma unroll
        for (int w = 0; w < 5; ++w) {
            const bool inside = first + 4 * w < end && (w < 4 || shift != 0);
            words[w] = inside ? __ldg(reinterpret_cast<const u32*>(base + first + 4 * w)) : 0;
        }
        uint4 packed;
        packed.x = __funnelshift_r(words[0], words[1], shift);
        packed.y = __funnelshift_r(words[1], words[2], shift);
        packed.z = __funnelshift_r(words[2], words[3], shift);
        packed.w = __funnelshift_r(words[3], words[4], shift);
        static_cast<uint4*>(job.to)[i] = packed;
    }
}

/// Columns become rows, a square of 64 at a time by way of shared memory.
template <int kElementBytes>
__device__ __forceinline__ void pack_columns(const PackJob& job) {
    using Element = typename ElementOf<kElementBytes>::Type;
    constexpr int kSquare = 64;
    // One element more a line: a column of the square then lies across all banks.
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
