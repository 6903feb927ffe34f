// Kernels that read A and B once and write as many bytes as C has: the least time of a launch that moves as much.
//
// `floor_bulk`: one thread per block moves the block's share by TMA, through a ring of pieces in shared memory.
// `floor_loads`: every thread keeps a few 16-byte loads in flight.
// Sizes are multiples of 16. What is written is whatever was read last; no block waits for another.
#pragma once

#include "common/types.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "read_only/ptx/bulk.cuh"

constexpr int kPieceBytes = 4096;
constexpr int kMostPieces = 54;  // of a ring: 216 KiB
constexpr int kAhead = 8;        // loads of a thread in flight

struct Range {
    unsigned char* begin;
    long long bytes;
};

/// A and B, cut into pieces: A's come first.
struct Pieces {
    Range a, b;
    int of_a, count;

    __device__ Pieces(Range a, Range b) : a(a), b(b), of_a(cut(a)), count(of_a + cut(b)) {}

    static __device__ int cut(Range range) { return int((range.bytes + kPieceBytes - 1) / kPieceBytes); }

    static __device__ Range piece(Range range, int place) {
        const long long from = (long long)place * kPieceBytes;
        return {range.begin + from, min((long long)kPieceBytes, range.bytes - from)};
    }

    __device__ Range operator[](int place) const { return place < of_a ? piece(a, place) : piece(b, place - of_a); }
};

__device__ __forceinline__ int share(int count, int block) { return int((long long)count * block / gridDim.x); }

extern "C" __global__ void __launch_bounds__(32) floor_bulk(Range a, Range b, Range c, int ring) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ u64 full[kMostPieces];
    if (threadIdx.x > 0) return;
    const Pieces pieces(a, b);
    const int begin = share(pieces.count, blockIdx.x), end = share(pieces.count, blockIdx.x + 1);
    auto load = [&](int place) {
        const int stage = (place - begin) % ring;
        const Range piece = pieces[place];
        mbarrier_arrive_expect_tx(&full[stage], u32(piece.bytes));
        bulk_load(memory + stage * kPieceBytes, piece.begin, u32(piece.bytes), &full[stage]);
    };
    for (int stage = 0; stage < ring; ++stage) mbarrier_init(&full[stage], 1);
    fence_mbarrier_init();
    for (int place = begin; place < min(end, begin + ring); ++place) load(place);
    for (int place = begin; place < end; ++place) {
        mbarrier_wait(&full[(place - begin) % ring], (place - begin) / ring % 2);
        if (place + ring < end) load(place + ring);
    }
    const int written = Pieces::cut(c);
    for (int place = share(written, blockIdx.x); place < share(written, blockIdx.x + 1); ++place) {
        const Range piece = Pieces::piece(c, place);
        bulk_store(piece.begin, memory + place % ring * kPieceBytes, u32(piece.bytes));
    }
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group<0>();
}

__device__ __forceinline__ uint4 load_once(const uint4* from) {
    uint4 got;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(from));
    return got;
}

__device__ __forceinline__ void read_all(Range range, uint4& mixed) {
    const auto* units = reinterpret_cast<const uint4*>(range.begin);
    const long long count = range.bytes / 16, step = (long long)gridDim.x * blockDim.x;
    for (long long unit = (long long)blockIdx.x * blockDim.x + threadIdx.x; unit < count; unit += kAhead * step) {
        uint4 got[kAhead] = {};
#pragma unroll
        for (int each = 0; each < kAhead; ++each) {
            if (unit + each * step < count) got[each] = load_once(units + unit + each * step);
        }
#pragma unroll
        for (int each = 0; each < kAhead; ++each) {
            mixed.x ^= got[each].x, mixed.y ^= got[each].y, mixed.z ^= got[each].z, mixed.w ^= got[each].w;
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) floor_loads(Range a, Range b, Range c, int) {
    uint4 mixed = {};
    read_all(b, mixed);
    read_all(a, mixed);
    auto* units = reinterpret_cast<uint4*>(c.begin);
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long unit = (long long)blockIdx.x * blockDim.x + threadIdx.x; unit < c.bytes / 16; unit += step) {
        units[unit] = mixed;
    }
}
