// A value that the compiler can't see through. No instruction is emitted.
#pragma once

#include "common/types.cuh"

/// Ends what the compiler knows of a value: nothing derived from it is computed earlier.
__device__ __forceinline__ void make_opaque(u32& value) { asm volatile("" : "+r"(value)); }
