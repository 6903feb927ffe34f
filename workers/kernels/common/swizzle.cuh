// Swizzled lines in shared memory.
#pragma once

#include "common/types.cuh"

/// Byte offset of 16-byte group `group` in line `line`, for lines of `kSpanBytes` swizzled over that span.
///
/// A line that is not 32, 64 or 128 bytes long is not swizzled: with an odd number of groups, eight lines still cover
/// all banks; with twice an odd number, half of them.
template <int kSpanBytes>
__device__ __forceinline__ u32 swizzled(int line, int group) {
    static_assert(kSpanBytes % 16 == 0, "whole groups");
    const u32 offset = line * kSpanBytes + group * 16;
    constexpr u32 kMask = kSpanBytes == 128 ? 7 : kSpanBytes == 64 ? 3 : kSpanBytes == 32 ? 1 : 0;
    return offset ^ (((offset >> 7) & kMask) << 4);
}
