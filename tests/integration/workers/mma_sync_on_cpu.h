// What the wrappers of workers/kernels/ptx that only `mma_sync` uses do, in plain C++ (ptx_on_cpu.h has the others), and
// what a warp and a block may see of one another's work.
//
// A copy arrives when it is waited for, at the latest moment that PTX allows, or as soon as it is issued, at the
// earliest: `copies_arrive_early` chooses. A kernel that waits too little reads bytes of NaN in the first case; one that
// overwrites a stage too early spoils it in the second.
#pragma once

#include <deque>
#include <map>

#include "common/types.cuh"

inline bool copies_arrive_early = false;

namespace on_cpu {
struct Copying {
    unsigned char* to;
    const void* from;
    unsigned width, bytes;

    void finish() const {
        std::memset(to, 0, width);
        if (bytes) std::memcpy(to, from, bytes);
    }
};
/// Groups of copies that each thread of each block has issued: the last is the one that the next commit ends.
inline std::map<std::pair<unsigned, unsigned>, std::deque<std::vector<Copying>>> copies;
inline std::deque<std::vector<Copying>>& own_copies() {
    auto& mine = copies[{blockIdx.x, threadIdx.x}];
    if (mine.empty()) mine.emplace_back();
    return mine;
}
/// Accesses that the hardware would refuse: not aligned to their own width, or outside the block's shared memory.
inline int refused = 0;
inline unsigned char nowhere[16];
/// A kernel sees the low half of an address.
inline unsigned char* shared_at(u32 address, unsigned bytes) {
    const u32 offset = address - u32(reinterpret_cast<u64>(dynamic_shared()));
    if (offset % bytes == 0 && offset + bytes <= dynamic.size() - 16) return dynamic_shared() + offset;
    ++refused;
    return nowhere;
}
inline void issue(u32 to, const void* from, unsigned width, unsigned bytes) {
    if (bytes > width || reinterpret_cast<u64>(from) % width) ++refused, bytes = 0;
    const Copying copy{shared_at(to, width), from, width, bytes};
    if (copies_arrive_early) copy.finish();
    else own_copies().back().push_back(copy);
}

/// What every lane of a warp gives, for all to read: written to two places in turn, as `exchanged` does.
inline std::map<unsigned, std::vector<u32>> given;
inline const u32* together(const u32* words, unsigned count) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto& place = given[warp * 2 + current().turn++ % 2];
    place.resize(32 * 8);
    std::copy(words, words + count, place.begin() + lane * 8);
    meet(warp_meetings[warp]);
    return place.data();
}
}  // namespace on_cpu

template <int>
void cp_async_cg(u32 to, const void* from, bool wanted, bool inside) {
    if (wanted) on_cpu::issue(to, from, 16, inside ? 16 : 0);
}
inline void cp_async_cg_first(u32 to, const void* from, bool wanted, u32 bytes) {
    if (wanted) on_cpu::issue(to, from, 16, bytes);
}
template <int kBytes>
void cp_async_ca(u32 to, const void* from, bool wanted, bool inside) {
    if (wanted) on_cpu::issue(to, from, kBytes, inside ? kBytes : 0);
}
inline void cp_async_commit_group() { on_cpu::own_copies().emplace_back(); }
template <int kPending>
void cp_async_wait_group() {
    auto& mine = on_cpu::own_copies();
    while (mine.size() > kPending + 1) {
        for (const auto& copy : mine.front()) copy.finish();
        mine.pop_front();
    }
}

/// What a tensor map holds: `Box` of workers/cuda/families/shared.py, field by field.
struct BoxOnCpu {
    const unsigned char* from;
    long long pitch, batch_pitch;
    int element_bytes, columns, lines, batch, box_columns, box_lines, swizzle_bytes;
};
static_assert(sizeof(BoxOnCpu) <= sizeof(CUtensorMap));

namespace on_cpu {
struct Loading {
    const BoxOnCpu* box;
    u32 to;
    int x, y, z;

    u32 bytes() const { return box->box_lines * box->box_columns * box->element_bytes; }
    void finish() const {
        const u32 line_bytes = box->box_columns * box->element_bytes;
        const u32 mask = box->swizzle_bytes / 16 - (box->swizzle_bytes > 0);
        const u32 base = u32(reinterpret_cast<u64>(dynamic_shared()));
        for (int line = 0; line < box->box_lines; ++line) {
            for (u32 byte = 0; byte < line_bytes; ++byte) {
                const long long column = x + byte / box->element_bytes;
                const bool inside = column < box->columns && y + line < box->lines && z < box->batch;
                const u32 plain = to - base + line * line_bytes + byte;
                const long long from = z * box->batch_pitch + (y + line) * box->pitch + (long long)x * box->element_bytes;
                *shared_at(base + (plain ^ (plain >> 7 & mask) << 4), 1) = inside ? box->from[from + byte] : 0;
            }
        }
    }
};
/// An mbarrier, and the copies that will signal it.
struct Counted {
    int wanted = 0, pending = 0;
    long long bytes = 0;
    unsigned phase = 0;
    std::deque<Loading> loading;

    void settle() {
        if (pending < 0) ++refused;
        if (pending != 0 || bytes != 0) return;
        ++phase;
        pending = wanted;
        ++arrivals;
    }
    void finish() {
        while (!loading.empty()) {
            const Loading copy = loading.front();
            loading.pop_front();
            copy.finish();
            bytes -= copy.bytes();
            settle();
        }
    }
};
inline std::map<const u64*, Counted> mbarriers;
/// Reads of a thread that nothing orders before later writes of the async proxy.
inline std::map<unsigned, bool> reads_unfenced;
}  // namespace on_cpu

inline void mbarrier_init(u64* barrier, u32 arrivals) {
    on_cpu::mbarriers[barrier] = {int(arrivals), int(arrivals)};
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx(u64* barrier, u32 bytes) {
    auto& counted = on_cpu::mbarriers[barrier];
    counted.bytes += bytes;
    --counted.pending;
    counted.settle();
}
inline void fence_proxy_async() { on_cpu::reads_unfenced[threadIdx.x] = false; }
/// Whoever arrives lets the next copy overwrite what its warp has read: each lane must have fenced its reads.
inline void mbarrier_arrive(u64* barrier) {
    const unsigned first = threadIdx.x / 32 * 32;
    for (unsigned lane = first; lane < first + 32; ++lane) on_cpu::refused += on_cpu::reads_unfenced[lane];
    auto& counted = on_cpu::mbarriers[barrier];
    --counted.pending;
    counted.settle();
}
/// Whoever waits lets late copies arrive.
inline void mbarrier_wait(u64* barrier, u32 parity) {
    auto& counted = on_cpu::mbarriers[barrier];
    counted.finish();
    while ((counted.phase & 1) == parity) {
        on_cpu::yield();
        counted.finish();
    }
}
inline void prefetch_tensormap(const CUtensorMap*) {}
inline void tma_load_cta_3d(void* to, const CUtensorMap* map, u64* barrier, int x, int y, int z, u64) {
    auto& counted = on_cpu::mbarriers[barrier];
    counted.loading.push_back({reinterpret_cast<const BoxOnCpu*>(map), smem_address(to), x, y, z});
    if ((smem_address(to) - u32(reinterpret_cast<u64>(dynamic_shared()))) % 128) ++on_cpu::refused;
    if (copies_arrive_early) counted.finish();
}
inline bool elect_sync() { return threadIdx.x % 32 == 0; }
inline u32 warp_uniform(u32 value) { return value; }
inline int tid_x() { return threadIdx.x; }
template <int>
void setmaxnreg_dec() {}
template <int>
void setmaxnreg_inc() {}

template <int kCount, bool kTransposed>
void ldmatrix(u32* const (&matrices)[kCount], u32 row_address) {
    const unsigned lane = threadIdx.x % 32;
    const u32* const addresses = on_cpu::together(&row_address, 1);
    for (unsigned matrix = 0; matrix < kCount; ++matrix) {
        u16 two[2];
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned row = kTransposed ? lane % 4 * 2 + i : lane / 4;
            const unsigned column = kTransposed ? lane / 4 : lane % 4 * 2 + i;
            std::memcpy(&two[i], on_cpu::shared_at(addresses[(matrix * 8 + row) * 8], 16) + 2 * column, 2);
        }
        *matrices[matrix] = two[0] | u32(two[1]) << 16;
    }
    on_cpu::reads_unfenced[threadIdx.x] = true;
    // Nobody goes on to overwrite a row before every lane has read it.
    __syncwarp();
}
template <bool kTransposed>
void ldmatrix_x4(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address) {
    ldmatrix<4, kTransposed>({&m0, &m1, &m2, &m3}, row_address);
}
template <bool kTransposed>
void ldmatrix_x2(u32& m0, u32& m1, u32 row_address) {
    ldmatrix<2, kTransposed>({&m0, &m1}, row_address);
}

inline u32 ld_shared(u32 address) {
    u32 word;
    std::memcpy(&word, on_cpu::shared_at(address, 4), 4);
    on_cpu::reads_unfenced[threadIdx.x] = true;
    return word;
}

enum class Input { kBf16, kFp16, kTf32, kFp8E4m3, kFp8E5m2, kInt8, kUint8 };
template <Input kInput>
double element(u32 word, unsigned place) {
    const u32 byte = word >> 8 * place & 0xFF, half = word >> 16 * (place & 1) & 0xFFFF;
    if constexpr (kInput == Input::kBf16) return __uint_as_float(half << 16);
    if constexpr (kInput == Input::kFp16) return decode<5, 10, true>(half);
    if constexpr (kInput == Input::kTf32) return __uint_as_float(word & ~0x1FFFu);
    if constexpr (kInput == Input::kFp8E4m3) return decode<4, 3, false>(byte);
    if constexpr (kInput == Input::kFp8E5m2) return decode<5, 2, true>(byte);
    if constexpr (kInput == Input::kInt8) return static_cast<signed char>(byte);
    return byte;
}
/// D of m16n8 over 32 bytes of K, as "Matrix Fragments for mma" of the PTX ISA gives rows, columns and k to lanes: A's
/// registers are rows r and r + 8 of the lower half of K, then of the upper one; B's are its lower and its upper half.
template <Input kA, Input kB>
struct Products {
    double of[4];

    Products(const u32 (&a)[4], const u32 (&b)[2]) {
        constexpr unsigned kPacked = kA == Input::kTf32 ? 1 : kA == Input::kBf16 || kA == Input::kFp16 ? 2 : 4;
        const u32 mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
        const u32* const all = on_cpu::together(mine, 6);
        const unsigned lane = threadIdx.x % 32;
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = lane / 4, below = i / 2, column = lane % 4 * 2 + i % 2;
            double sum = 0;
            for (unsigned half = 0; half < 2; ++half) {
                for (unsigned quad = 0; quad < 4; ++quad) {
                    for (unsigned place = 0; place < kPacked; ++place) {
                        sum += element<kA>(all[(row * 4 + quad) * 8 + 2 * half + below], place) *
                               element<kB>(all[(column * 4 + quad) * 8 + 4 + half], place);
                    }
                }
            }
            of[i] = sum;
        }
    }
};
template <Input kA, Input kB, class Sums>
void mma_sync(Sums (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const Products<kA, kB> products(a, b);
    for (unsigned i = 0; i < 4; ++i) d[i] = Sums(d[i] + products.of[i]);
}
/// Byte 0 of lane 4r + h's scale is that of row r + 8h of A, of lane 4c's that of column c of B: 2^(byte - 127).
template <Input kA, Input kB>
void mma_sync_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 scale_a, u32 scale_b) {
    const Products<kA, kB> products(a, b);
    const u32 mine[2] = {scale_a, scale_b};
    const u32* const all = on_cpu::together(mine, 2);
    const unsigned row = threadIdx.x % 32 / 4;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned column = threadIdx.x % 4 * 2 + i % 2;
        const int of_a = all[(4 * row + i / 2) * 8] & 0xFF, of_b = all[4 * column * 8 + 1] & 0xFF;
        d[i] = float(d[i] + std::ldexp(products.of[i], of_a + of_b - 2 * 127));
    }
}
/// f16 sums: two neighbours of a row in one register, those eight rows below in the other.
template <Input kA, Input kB>
void mma_sync(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2]) {
    const Products<kA, kB> products(a, b);
    for (unsigned i = 0; i < 2; ++i) {
        const double low = cvt_f32_f16(u16(d[i])) + products.of[2 * i];
        const double high = cvt_f32_f16(u16(d[i] >> 16)) + products.of[2 * i + 1];
        d[i] = cvt_f16x2(float(low), float(high));
    }
}

inline u32 movmatrix_transposed(u32 pair) {
    const unsigned row = threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
    const u32 low = on_cpu::exchanged(pair, column * 4 + row / 2) >> 16 * (row % 2);
    const u32 high = on_cpu::exchanged(pair, (column + 1) * 4 + row / 2) >> 16 * (row % 2);
    return (low & 0xFFFF) | high << 16;
}

inline int __popc(u32 bits) { return __builtin_popcount(bits); }
inline int __ffs(u32 bits) { return __builtin_ffs(bits); }
/// The kernel's only named barrier is one of all threads that multiply.
inline on_cpu::Meeting named_meeting;
inline void bar_sync(int, int threads) {
    named_meeting.wanted = threads;
    on_cpu::meet(named_meeting);
}
inline u64 atom_add_acq_rel(u64* at, u64 addend) {
    const u64 before = *at;
    *at += addend;
    return before;
}
inline u64 atom_cas_acq_rel(u64* at, u64 expected, u64 desired) {
    const u64 before = *at;
    if (before == expected) *at = desired;
    return before;
}
inline u64 ld_acquire(const u64* at) { return *at; }
