// The reference: sums of products in float64 on the CUDA cores, independent of every tensor-core path.
#pragma once

#include "common/types.cuh"
#include "verify/elements.cuh"

constexpr int kReferenceTile = 64;
constexpr int kReferenceDepth = 16;
constexpr int kReferenceThreads = 256;
static_assert(kReferenceTile * kReferenceDepth % kReferenceThreads == 0, "threads share the loads evenly");

/// One operand: `rows` of C's extent by `k`, each with its own stride, so that one type serves every layout.
struct Operand {
    const void* data;
    long long row_stride, k_stride, batch_stride;  // in elements
    int rows, element;
};

/// 64 rows by 16 of K into shared memory as float64, zeros outside. Neighbouring threads follow the unit stride.
__device__ __forceinline__ void stage_operand(double (&tile)[kReferenceDepth][kReferenceTile + 1], const Operand& x,
                                              u64 base, int row0, int k0, int k) {
    const bool along_k = x.k_stride == 1;
    for (int i = threadIdx.x; i < kReferenceTile * kReferenceDepth; i += kReferenceThreads) {
        const int row = along_k ? i / kReferenceDepth : i % kReferenceTile;
        const int depth = along_k ? i % kReferenceDepth : i / kReferenceTile;
        const bool inside = row0 + row < x.rows && k0 + depth < k;
        const u64 index = base + u64(row0 + row) * x.row_stride + u64(k0 + depth) * x.k_stride;
        tile[depth][row] = inside ? load_element(x.data, index, x.element) : 0.0;
    }
}

/// A 64x64 tile of sums, 4x4 elements a thread (rows ty + 16i, columns tx + 16j).
///
/// Products of operands are exact in float64, and so are sums of integers up to 2^53; the sum of 2^20 products of
/// floats is good to about 2^-33 of its terms.
__device__ __forceinline__ void reference_tile(const Operand& a, const Operand& b, double* sums, int k, int batch,
                                               int row0, int column0) {
    __shared__ double tile_a[kReferenceDepth][kReferenceTile + 1];
    __shared__ double tile_b[kReferenceDepth][kReferenceTile + 1];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    double sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += kReferenceDepth) {
        stage_operand(tile_a, a, u64(batch) * a.batch_stride, row0, k0, k);
        stage_operand(tile_b, b, u64(batch) * b.batch_stride, column0, k0, k);
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < kReferenceDepth; ++depth) {
            double va[4], vb[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                va[i] = tile_a[depth][ty + 16 * i];
                vb[i] = tile_b[depth][tx + 16 * i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fma(va[i], vb[j], sum[i][j]);
        }
        __syncthreads();
    }
    double* const out = sums + u64(batch) * a.rows * b.rows;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = row0 + ty + 16 * i, column = column0 + tx + 16 * j;
            if (row < a.rows && column < b.rows) out[u64(row) * b.rows + column] = sum[i][j];
        }
}

enum Activation { kNoActivation, kRelu, kGelu, kSilu };

/// What becomes of the sums, and how far a right result may be from it.
struct Finish {
    double* reference;  // sums on entry
    float* bound;
    const float *norms_a, *norms_b;  // of rows of A and columns of B, over K
    const void *source, *bias;       // of the epilogue; null without
    const float *scale_a, *scale_b;  // of A and B; null without
    double alpha, beta;
    // Shares and limits that workers/cuda/bounds.py derives.
    double accumulation;  // error of a sum, of ‖a_i‖·‖b_j‖
    double epilogue;      // rounding of each of the epilogue's terms
    double activation;    // error of the activation function, of its argument
    double rounding;      // to C's dtype, of the value
    double smallest;      // to C's dtype, absolute, where values are subnormal or whole
    double most;          // largest value of C's dtype
    double least;         // smallest value of C's dtype
    u64 count;            // elements of all batches
    int m, n, element_c, element_bias, kind;
    int saturates;        // whether values beyond the range become its ends, or infinite
    int scaled_rowwise;   // whether each row of A and column of B has a scale
};

__device__ __forceinline__ double activated(double x, int kind) {
    switch (kind) {
        case kRelu: return fmax(x, 0.0);
        case kGelu: return 0.5 * x * erfc(-0.7071067811865476 * x);
        case kSilu: return x / (1.0 + exp(-x));
        default: return x;
    }
}

__device__ __forceinline__ void finish_element(const Finish& f, u64 i) {
    const u64 row = i / f.n;  // of all batches
    const int column = int(i % f.n);
    const u64 batch = row / f.m;
    const u64 at_a = f.scaled_rowwise ? row : 0;
    const int at_b = f.scaled_rowwise ? column : 0;
    const double factor = f.scale_a ? double(f.scale_a[at_a]) * f.scale_b[at_b] : f.alpha;
    const double product = factor * f.reference[i];
    const double from_source = f.source ? f.beta * load_element(f.source, i, f.element_c) : 0.0;
    const double from_bias = f.bias ? load_element(f.bias, column, f.element_bias) : 0.0;
    const double x = product + from_source + from_bias;
    const double norms = double(f.norms_a[row]) * f.norms_b[batch * f.n + column];
    double error = fabs(factor) * f.accumulation * norms;
    error += f.epilogue * (fabs(product) + fabs(from_source) + fabs(from_bias));
    double y = activated(x, f.kind);
    // No activation is steeper than 1.13.
    if (f.kind != kNoActivation) error = 1.13 * error + (f.kind == kRelu ? 0.0 : f.activation * fabs(x));
    const double bound = f.rounding * (fabs(y) + error) + error + f.smallest;
    // At the edge of the range a right result may be on either side of it.
    const bool at_edge = !f.saturates && fabs(fabs(y) - f.most) <= bound;
    if (y > f.most) y = f.saturates ? f.most : __longlong_as_double(0x7FF0000000000000ll);
    if (y < f.least) y = f.saturates ? f.least : __longlong_as_double(0xFFF0000000000000ll);
    f.reference[i] = y;
    f.bound[i] = at_edge ? __uint_as_float(0x7F800000u) : float(bound);
}
