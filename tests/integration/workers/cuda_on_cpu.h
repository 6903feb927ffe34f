// Just enough of CUDA to run the verification kernels on a CPU: a thread for each thread of a block, block after block.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

constexpr int kThreads = 256, kWarps = kThreads / 32;
struct Place {
    unsigned x;
};
inline thread_local Place threadIdx, blockIdx;
inline Place blockDim{kThreads}, gridDim{1};
inline std::barrier<>* block_barrier;
inline std::unique_ptr<std::barrier<>> warp_barriers[kWarps];
inline float lanes[kWarps][32];

inline void __syncthreads() { block_barrier->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float value, int mask) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lanes[warp][lane] = value;
    warp_barriers[warp]->arrive_and_wait();
    const float got = lanes[warp][lane ^ mask];
    warp_barriers[warp]->arrive_and_wait();
    return got;
}

template <class To, class From>
To bit_copy(From from) {
    To to;
    static_assert(sizeof(to) == sizeof(from));
    std::memcpy(&to, &from, sizeof(to));
    return to;
}
inline unsigned __float_as_uint(float value) { return bit_copy<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return bit_copy<float>(bits); }
inline double __longlong_as_double(long long bits) { return bit_copy<double>(bits); }
inline float __logf(float x) { return std::log(x); }
inline float __cosf(float x) { return std::cos(x); }
inline unsigned long long __cvta_generic_to_shared(const void* p) { return reinterpret_cast<unsigned long long>(p); }
struct uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class T>
T atomicAdd(T* at, T value) {
    return std::atomic_ref<T>(*at).fetch_add(value);
}
template <class T>
T atomicMax(T* at, T value) {
    std::atomic_ref<T> cell(*at);
    T old = cell.load();
    while (old < value && !cell.compare_exchange_weak(old, value)) {
    }
    return old;
}
using std::max;
using std::min;

template <class Kernel>
void run_grid(unsigned blocks, Kernel kernel) {
    gridDim.x = blocks;
    for (unsigned block = 0; block < blocks; ++block) {
        std::barrier<> whole(kThreads);
        block_barrier = &whole;
        for (auto& warp : warp_barriers) warp = std::make_unique<std::barrier<>>(32);
        std::vector<std::thread> threads;
        for (unsigned thread = 0; thread < kThreads; ++thread) {
            threads.emplace_back([=] {
                threadIdx.x = thread;
                blockIdx.x = block;
                kernel();
            });
        }
        for (auto& thread : threads) thread.join();
    }
}
