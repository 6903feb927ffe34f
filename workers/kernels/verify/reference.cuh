// The reference: C = A·Bᵀ in float64 on the CUDA cores, independent of every tensor-core path.
#pragma once

#include "common/types.cuh"
#include "ptx/convert.cuh"

constexpr int kReferenceTile = 64;
constexpr int kReferenceDepth = 16;
constexpr int kReferenceThreads = 256;

/// A 64x64 tile of C, 4x4 elements a thread (rows ty + 16i, columns tx + 16j), operands staged as float64.
/// Products of bf16 are exact in float64; the sum of 2^20 of them is good to about 2^-33.
__device__ __forceinline__ void reference_tile(const u16* a, const u16* b, float* c, int m, int n, int k, int row0,
                                               int column0) {
    __shared__ double tile_a[kReferenceDepth][kReferenceTile + 1];
    __shared__ double tile_b[kReferenceDepth][kReferenceTile + 1];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    double sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += kReferenceDepth) {
        for (int i = threadIdx.x; i < kReferenceTile * kReferenceDepth; i += kReferenceThreads) {
            const int r = i / kReferenceDepth, x = i % kReferenceDepth;
            const bool deep = k0 + x < k;
            tile_a[x][r] = deep && row0 + r < m ? double(cvt_f32(a[u64(row0 + r) * k + k0 + x])) : 0.0;
            tile_b[x][r] = deep && column0 + r < n ? double(cvt_f32(b[u64(column0 + r) * k + k0 + x])) : 0.0;
        }
        __syncthreads();
#pragma unroll
        for (int x = 0; x < kReferenceDepth; ++x) {
            double va[4], vb[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                va[i] = tile_a[x][ty + 16 * i];
                vb[i] = tile_b[x][tx + 16 * i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fma(va[i], vb[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int r = row0 + ty + 16 * i, s = column0 + tx + 16 * j;
            if (r < m && s < n) c[u64(r) * n + s] = float(sum[i][j]);
        }
}
