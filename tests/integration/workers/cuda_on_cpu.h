// Just enough of CUDA to run kernels on a CPU: the threads of a block take turns as fibers of one thread, block after
// block; one runs until it waits for others. Includes no file of ours; what PTX does, tests state in plain C++.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)

struct Place {
    unsigned x;
};
inline Place threadIdx, blockIdx;
inline Place blockDim{256}, gridDim{1};

namespace on_cpu {
constexpr std::size_t kStackBytes = 64 << 10;

/// Counts arrivals; whoever waits goes on once all have come.
struct Meeting {
    unsigned wanted = 0, here = 0, round = 0;
};
struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    bool done = false;
    unsigned turn = 0;  // of its exchanges within the warp
};
inline std::vector<std::unique_ptr<Fiber>> fibers;
inline ucontext_t scheduler;
inline Meeting block_meeting;
inline std::vector<Meeting> warp_meetings;
inline std::vector<unsigned> slots;  // [warp][turn % 2][lane]
inline std::function<void()> body;
inline std::vector<unsigned char> dynamic;
inline unsigned arrivals = 0;  // at any meeting
inline bool may_hang = false;  // threads that wait for ever end the grid, not the process
inline bool hung = false;

inline Fiber& current() { return *fibers[threadIdx.x]; }
inline void yield() { swapcontext(&current().context, &scheduler); }
inline void meet(Meeting& meeting) {
    const unsigned round = meeting.round;
    ++arrivals;
    if (++meeting.here == meeting.wanted) {
        meeting.here = 0;
        ++meeting.round;
        return;
    }
    while (meeting.round == round) yield();
}
inline void start() {
    body();
    current().done = true;
}
/// Exchanges take two places in turn: nobody writes to one before everybody has read it.
inline unsigned exchanged(unsigned bits, unsigned from) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned* const row = &slots[(warp * 2 + current().turn++ % 2) * 32];
    row[lane] = bits;
    meet(warp_meetings[warp]);
    return row[from];
}
}  // namespace on_cpu

inline void __syncthreads() { on_cpu::meet(on_cpu::block_meeting); }
inline void __syncwarp() { on_cpu::meet(on_cpu::warp_meetings[threadIdx.x / 32]); }
inline void __threadfence() {}

template <class To, class From>
To bit_copy(From from) {
    To to;
    static_assert(sizeof(to) == sizeof(from));
    std::memcpy(&to, &from, sizeof(to));
    return to;
}
template <class Word>
Word __shfl_xor_sync(unsigned, Word value, int mask) {
    const unsigned from = threadIdx.x % 32 ^ mask;
    if constexpr (sizeof(Word) == 8) {
        const unsigned low = on_cpu::exchanged(unsigned(value), from);
        return Word(on_cpu::exchanged(unsigned(value >> 32), from)) << 32 | low;
    } else {
        return bit_copy<Word>(on_cpu::exchanged(bit_copy<unsigned>(value), from));
    }
}
template <class Word>
Word __shfl_sync(unsigned, Word value, int from) {
    return bit_copy<Word>(on_cpu::exchanged(bit_copy<unsigned>(value), from));
}
inline unsigned __float_as_uint(float value) { return bit_copy<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return bit_copy<float>(bits); }
inline double __longlong_as_double(long long bits) { return bit_copy<double>(bits); }
inline float __logf(float x) { return std::log(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __cosf(float x) { return std::cos(x); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned(((unsigned long long)high << 32 | low) >> by);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __cvta_generic_to_shared(const void* p) { return reinterpret_cast<unsigned long long>(p); }
struct float2 {
    float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(8) uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
void __stcg(T* to, T value) {
    *to = value;
}
template <class T>
T atomicAdd(T* at, T value) {
    const T old = *at;
    *at += value;
    return old;
}
template <class T>
T atomicMax(T* at, T value) {
    const T old = *at;
    *at = std::max(old, value);
    return old;
}
using std::max;
using std::min;

/// Runs `kernel` for every thread of a grid. Shared memory begins as bytes of NaN; a barrier that some threads never
/// reach ends the process, or the grid where that is expected.
template <class Kernel>
void run_grid(unsigned blocks, Kernel kernel, unsigned threads = 256, unsigned smem_bytes = 0) {
    using namespace on_cpu;
    gridDim.x = blocks;
    blockDim.x = threads;
    body = kernel;
    hung = false;
    while (fibers.size() < threads) fibers.push_back(std::make_unique<Fiber>());
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        dynamic.assign(smem_bytes + 16, 0xFF);
        block_meeting = {threads};
        warp_meetings.assign((threads + 31) / 32, {32});
        slots.assign(warp_meetings.size() * 64, 0);
        for (unsigned thread = 0; thread < threads; ++thread) {
            Fiber& fiber = *fibers[thread];
            fiber.done = false;
            fiber.turn = 0;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = kStackBytes;
            fiber.context.uc_link = &scheduler;
            makecontext(&fiber.context, start, 0);
        }
        for (unsigned left = threads, idle = 0; left;) {
            if (++idle > 4) {
                if (!may_hang) std::abort();
                hung = true;
                return;
            }
            for (unsigned thread = 0; thread < threads; ++thread) {
                Fiber& fiber = *fibers[thread];
                if (fiber.done) continue;
                threadIdx.x = thread;
                const unsigned before = arrivals;
                swapcontext(&scheduler, &fiber.context);
                if (fiber.done) --left;
                if (fiber.done || before != arrivals) idle = 0;
            }
        }
    }
}

/// Dynamic shared memory, at a multiple of 16 bytes.
inline unsigned char* dynamic_shared() {
    return on_cpu::dynamic.data() + (16 - reinterpret_cast<unsigned long long>(on_cpu::dynamic.data()) % 16) % 16;
}
