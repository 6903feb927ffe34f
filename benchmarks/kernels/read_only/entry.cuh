// A kernel that reads a range of memory once and does nothing else: the least time of a launch that reads as much.
//
// One thread per block loads the block's share by TMA, a ring of pieces at a time. `prefetched` pieces are prefetched into
// L2 while the kernel before may still be running.
#pragma once

#include "common/types.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "read_only/ptx/bulk.cuh"

constexpr int kPieceBytes = 8192;
constexpr int kMostPieces = 27;  // of a ring: 216 KiB

extern "C" __global__ void __launch_bounds__(32)
    read_only(const unsigned char* from, int pieces, int ring, int prefetched) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ u64 full[kMostPieces];
    if (threadIdx.x > 0) return;
    const int begin = int((long long)pieces * blockIdx.x / gridDim.x);
    const int end = int((long long)pieces * (blockIdx.x + 1) / gridDim.x);
    auto load = [&](int piece) {
        const int place = (piece - begin) % ring;
        mbarrier_arrive_expect_tx(&full[place], kPieceBytes);
        bulk_load(memory + place * kPieceBytes, from + (long long)piece * kPieceBytes, kPieceBytes, &full[place]);
    };
    for (int place = 0; place < ring; ++place) mbarrier_init(&full[place], 1);
    fence_mbarrier_init();
    for (int piece = begin; piece < min(end, begin + prefetched); ++piece) {
        bulk_prefetch(from + (long long)piece * kPieceBytes, kPieceBytes);
    }
    griddepcontrol_wait();
    for (int piece = begin; piece < min(end, begin + ring); ++piece) load(piece);
    griddepcontrol_launch_dependents();
    for (int piece = begin; piece < end; ++piece) {
        mbarrier_wait(&full[(piece - begin) % ring], (piece - begin) / ring % 2);
        if (piece + ring < end) load(piece + ring);
    }
}
