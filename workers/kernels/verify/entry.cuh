// Kernels around a measurement: operands, poison, the reference, and the comparison of every element.
// Matrices are dense; one-dimensional grids with grid-stride loops unless said otherwise.
#pragma once

#include "common/types.cuh"
#if __CUDA_ARCH__ >= 900
#include "ptx/griddepcontrol.cuh"
#endif
#include "verify/elements.cuh"
#include "verify/random.cuh"
#include "verify/reference.cuh"

/// What one check found. The host clears it to zeros; the kernels only add.
struct CheckResult {
    u64 mismatches;    // elements outside their bound, NaN included
    u64 first_bad;     // complement of the smallest index of one
    u64 differences;   // elements that differ between two runs
    u64 guard_bytes;   // bytes outside C that were overwritten
    u32 worst_ratio;   // largest |error| / bound, bits of a non-negative float
};

/// Bytes that must still hold a pattern, which repeats every four bytes of the address.
struct GuardZone {
    const u8* begin;
    u64 bytes;
    u32 pattern;
};

__device__ __forceinline__ u64 first_index() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 index_step() { return u64(gridDim.x) * blockDim.x; }
__device__ __forceinline__ u8 pattern_byte(const u8* at, u32 pattern) {
    return u8(pattern >> (8 * (reinterpret_cast<u64>(at) & 3)));
}

/// Random elements; `units` asks for -1, 0 and 1.
extern "C" __global__ void fill_random(void* out, u64 count, u64 seed, int element, int units) {
    for (u64 i = first_index(); i < count; i += index_step())
        store_element(out, i, element, random_value(random_bits(seed, i), element, units != 0));
}

/// `out` is 16-byte aligned; `bytes` is any number.
extern "C" __global__ void fill_bytes(u8* out, u64 bytes, u32 pattern) {
    const u64 wide = bytes / 16;
    for (u64 i = first_index(); i < wide; i += index_step())
        reinterpret_cast<uint4*>(out)[i] = make_uint4(pattern, pattern, pattern, pattern);
    for (u64 i = 16 * wide + first_index(); i < bytes; i += index_step()) out[i] = pattern_byte(out + i, pattern);
}

/// One block per 64x64 tile of one product; tiles are numbered along N first, then M, then batch.
extern "C" __global__ void __launch_bounds__(kReferenceThreads)
    reference_sums(const Operand a, const Operand b, double* sums, int k) {
    const int across = ceil_div(b.rows, kReferenceTile), down = ceil_div(a.rows, kReferenceTile);
    const int tile = blockIdx.x % (across * down);
    reference_tile(a, b, sums, k, int(blockIdx.x / (across * down)), tile / across * kReferenceTile,
                   tile % across * kReferenceTile);
}

/// Euclidean norm over K of each row of an operand, batch after batch; one warp a row.
extern "C" __global__ void row_norms(const Operand x, float* norms, int k, int batch) {
    const int lane = threadIdx.x % kWarpSize;
    for (u64 row = first_index() / kWarpSize; row < u64(x.rows) * batch; row += index_step() / kWarpSize) {
        const u64 base = row / x.rows * x.batch_stride + row % x.rows * x.row_stride;
        float sum = 0.0f;
        for (int i = lane; i < k; i += kWarpSize) {
            const float value = float(load_element(x.data, base + u64(i) * x.k_stride, x.element));
            sum = fmaf(value, value, sum);
        }
        for (int offset = kWarpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
        if (lane == 0) norms[row] = sqrtf(sum);
    }
}

/// Sums to the expected C, with the bound of each element beside it.
extern "C" __global__ void finish_reference(const Finish finish) {
    for (u64 i = first_index(); i < finish.count; i += index_step()) finish_element(finish, i);
}

/// |c - reference| ≤ bound, for every element.
extern "C" __global__ void compare_output(const void* c, int element, const double* reference, const float* bounds,
                                          u64 count, CheckResult* result) {
    float worst = 0.0f;
    u64 bad = 0, first_bad = 0;
    for (u64 i = first_index(); i < count; i += index_step()) {
        const double value = load_element(c, i, element), expected = reference[i], bound = bounds[i];
        const double error = value == expected ? 0.0 : fabs(value - expected);
        // Written so that NaN is on the wrong side.
        const bool within = error <= bound;
        if (!within) {
            ++bad;
            first_bad = max(first_bad, ~i);
        }
        // Infinity and NaN count as this much, which JSON can carry. A bound may be infinite where C overflows.
        const double ratio = within && (error == 0.0 || bound > 1e37) ? 0.0 : error / fmax(bound, 1e-30);
        worst = fmaxf(worst, ratio <= 1e30 ? float(ratio) : 1e30f);
    }
    if (bad) {
        atomicAdd(&result->mismatches, bad);
        atomicMax(&result->first_bad, first_bad);
    }
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) worst = fmaxf(worst, __shfl_xor_sync(0xFFFFFFFF, worst, offset));
    // Non-negative floats compare like their bits.
    if (threadIdx.x % kWarpSize == 0) atomicMax(&result->worst_ratio, __float_as_uint(worst));
}

/// Elements in which two runs on the same operands differ: a race, whatever the reference says.
/// Both are 16-byte aligned.
extern "C" __global__ void count_differences(const u8* one, const u8* other, u64 count, int element,
                                             CheckResult* result) {
    const int size = element_bytes(element);
    const u64 bytes = count * size, wide = bytes / 16;
    u64 different = 0;
    auto count_in = [&](u64 from, u64 to) {
        for (u64 at = from; at < to; at += size) {
            bool same = true;
            for (int i = 0; i < size; ++i) same = same && one[at + i] == other[at + i];
            different += !same;
        }
    };
    for (u64 i = first_index(); i < wide; i += index_step()) {
        const uint4 x = reinterpret_cast<const uint4*>(one)[i], y = reinterpret_cast<const uint4*>(other)[i];
        if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w) count_in(16 * i, 16 * i + 16);
    }
    if (first_index() == 0) count_in(16 * wide, bytes);
    if (different) atomicAdd(&result->differences, different);
}

/// Bytes of all zones that no longer hold their pattern; one block works on one zone.
extern "C" __global__ void check_guards(const GuardZone* zones, int count, CheckResult* result) {
    u64 changed = 0;
    for (int place = blockIdx.x; place < count; place += gridDim.x) {
        const GuardZone zone = zones[place];
        for (u64 i = threadIdx.x; i < zone.bytes; i += blockDim.x)
            changed += zone.begin[i] != pattern_byte(zone.begin + i, zone.pattern);
    }
    if (changed) atomicAdd(&result->guard_bytes, changed);
}

/// What launches left in an output that none of them should have.
struct Changed {
    u32 copies;  // outputs whose digest is not the verified one
    u32 first;   // complement of the smallest index of one
};

/// Shares outputs among the blocks of a grid: each output has as many blocks as each other one.
struct OutputShare {
    int copy, copies;   // the first output of this block, and how many there are
    u64 thread, step;   // this thread among all that work on an output
    bool idle;          // blocks that are left over
    __device__ __forceinline__ explicit OutputShare(int outputs) : copy(blockIdx.x % outputs), copies(outputs) {
        const int parts = max(int(gridDim.x) / outputs, 1), part = int(blockIdx.x) / outputs;
        thread = u64(part) * blockDim.x + threadIdx.x;
        step = u64(parts) * blockDim.x;
        idle = part >= parts;
    }
    __device__ __forceinline__ bool next() { return (copy += gridDim.x) < copies; }
};

/// Poisons every output; each is 16-byte aligned.
extern "C" __global__ void poison_outputs(u8* const* outputs, int copies, u64 bytes, u32 pattern) {
    OutputShare share(copies);
    if (share.idle) return;
    const u64 wide = bytes / 16;
    do {
        u8* const out = outputs[share.copy];
        for (u64 i = share.thread; i < wide; i += share.step)
            reinterpret_cast<uint4*>(out)[i] = make_uint4(pattern, pattern, pattern, pattern);
        for (u64 i = 16 * wide + share.thread; i < bytes; i += share.step) out[i] = pattern_byte(out + i, pattern);
    } while (share.next());
}

/// Adds the digest of each output to `digests`: a sum over its words, each mixed with its place. Each output is 16-byte
/// aligned. Sums of whole numbers do not depend on the order in which blocks add them.
extern "C" __global__ void digest_outputs(const u8* const* outputs, int copies, u64 bytes, u64* digests) {
    OutputShare share(copies);
    if (share.idle) return;
    const u64 words = bytes / 8;
    do {
        const u8* const out = outputs[share.copy];
        u64 sum = 0;
        for (u64 i = share.thread; i < words; i += share.step)
            sum += mix64(reinterpret_cast<const u64*>(out)[i] + mix64(i + 1));
        for (u64 i = 8 * words + share.thread; i < bytes; i += share.step) sum += mix64(out[i] + mix64(~i));
        for (int offset = kWarpSize / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
        if (threadIdx.x % kWarpSize == 0) atomicAdd(&digests[share.copy], sum);
    } while (share.next());
}

/// Compares the digests with the verified one and clears them; one block.
extern "C" __global__ void compare_digests(u64* digests, int copies, u64 verified, Changed* changed) {
    for (int copy = threadIdx.x; copy < copies; copy += blockDim.x) {
        if (digests[copy] != verified) {
            atomicAdd(&changed->copies, 1u);
            atomicMax(&changed->first, ~u32(copy));
        }
        digests[copy] = 0;
    }
}

/// A short elementwise kernel, as programs run between their products. It triggers nothing early.
extern "C" __global__ void neighbour(float* values, int count) {
    for (u64 i = first_index(); i < u64(count); i += index_step()) values[i] += 1.0f;
}

/// The same, written for programmatic dependent launch: the kernel behind it may start at once.
extern "C" __global__ void early_neighbour(float* values, int count) {
#if __CUDA_ARCH__ >= 900
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
#endif
    for (u64 i = first_index(); i < u64(count); i += index_step()) values[i] += 1.0f;
}
