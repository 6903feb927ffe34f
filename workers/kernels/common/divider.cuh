// Division by a number that the host knows.
#pragma once

#include "common/types.cuh"

/// A multiplication and a shift, exact for dividends below 2^31. The host computes both: `Divider` in
/// workers/cuda/families/arguments.py.
struct Divider {
    u32 multiplier, shift, divisor;

    __device__ __forceinline__ int quotient(int dividend) const {
        return divisor == 1 ? dividend : int(__umulhi(u32(dividend), multiplier) >> shift);
    }
};
