// Kernels around a measurement: operands, poison, the reference, and the comparison of every element.
// Matrices are row-major without padding; one-dimensional grids with grid-stride loops unless said otherwise.
#pragma once

#include "common/types.cuh"
#include "verify/random.cuh"
#include "verify/reference.cuh"

/// What one check found. The host clears it; the kernels only add.
struct CheckResult {
    u64 mismatches;   // elements outside their bound, NaN included
    u64 first_bad;    // smallest index of one
    u64 differences;  // elements that differ between two runs
    u64 guard_words;  // words around C that were overwritten
    u32 worst_ratio;  // largest |error| / bound, bits of a non-negative float
};

__device__ __forceinline__ u64 first_index() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 index_step() { return u64(gridDim.x) * blockDim.x; }

extern "C" __global__ void fill_normal_bf16(u16* out, u64 count, u64 seed) {
    for (u64 i = first_index(); i < count; i += index_step()) out[i] = u16(cvt_bf16x2(normal(seed, i), 0.0f));
}

/// 32-bit words, so that `count` 16-bit elements need a buffer of an even number of them.
extern "C" __global__ void fill_words(u32* out, u64 words, u32 pattern) {
    for (u64 i = first_index(); i < words; i += index_step()) out[i] = pattern;
}

/// One block per 64x64 tile of C, tiles numbered along N first.
extern "C" __global__ void __launch_bounds__(kReferenceThreads) reference_nt_bf16(const u16* a, const u16* b, float* c,
                                                                                 int m, int n, int k) {
    const int across = ceil_div(n, kReferenceTile);
    reference_tile(a, b, c, m, n, k, int(blockIdx.x / across) * kReferenceTile, int(blockIdx.x % across) * kReferenceTile);
}

/// Euclidean norm of each row; one warp a row.
extern "C" __global__ void row_norms_bf16(const u16* x, float* norms, int rows, int columns) {
    const int lane = threadIdx.x % kWarpSize;
    for (u64 row = first_index() / kWarpSize; row < u64(rows); row += index_step() / kWarpSize) {
        float sum = 0.0f;
        for (int column = lane; column < columns; column += kWarpSize) {
            const float value = cvt_f32(x[row * columns + column]);
            sum = fmaf(value, value, sum);
        }
        for (int offset = kWarpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
        if (lane == 0) norms[row] = sqrtf(sum);
    }
}

/// |c - reference| ≤ rounding·|reference| + accumulation·‖a_i‖·‖b_j‖, for every element.
extern "C" __global__ void compare_bf16(const u16* c, const float* reference, const float* norm_a, const float* norm_b,
                                        int m, int n, float rounding, float accumulation, CheckResult* result) {
    float worst = 0.0f;
    u64 bad = 0, first_bad = ~0ull;
    for (u64 i = first_index(); i < u64(m) * n; i += index_step()) {
        const float expected = reference[i];
        const float bound = rounding * fabsf(expected) + accumulation * norm_a[i / n] * norm_b[i % n];
        const float error = fabsf(cvt_f32(c[i]) - expected);
        // Written so that NaN is on the wrong side.
        if (!(error <= bound)) {
            ++bad;
            first_bad = min(first_bad, i);
        }
        // Infinity and NaN count as this much, which JSON can carry.
        const float ratio = error / fmaxf(bound, 1e-30f);
        worst = fmaxf(worst, ratio <= 1e30f ? ratio : 1e30f);
    }
    if (bad) {
        atomicAdd(&result->mismatches, bad);
        atomicMin(&result->first_bad, first_bad);
    }
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) worst = fmaxf(worst, __shfl_xor_sync(0xFFFFFFFF, worst, offset));
    // Non-negative floats compare like their bits.
    if (threadIdx.x % kWarpSize == 0) atomicMax(&result->worst_ratio, __float_as_uint(worst));
}

/// Elements in which two runs on the same operands differ: a race, whatever the reference says.
extern "C" __global__ void count_differences(const u16* one, const u16* other, u64 count, CheckResult* result) {
    u64 different = 0;
    for (u64 i = first_index(); i < count; i += index_step()) different += one[i] != other[i];
    if (different) atomicAdd(&result->differences, different);
}

/// Words that no longer hold the guard pattern.
extern "C" __global__ void check_guard(const u32* guard, u64 words, u32 pattern, CheckResult* result) {
    u64 changed = 0;
    for (u64 i = first_index(); i < words; i += index_step()) changed += guard[i] != pattern;
    if (changed) atomicAdd(&result->guard_words, changed);
}
