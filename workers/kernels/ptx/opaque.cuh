// A value that the compiler can't see through. No instruction is emitted.
#pragma once

/// Ends what the compiler knows of a pointer: nothing derived from it is computed earlier.
template <class T>
__device__ __forceinline__ void make_opaque(T*& pointer) {
    asm volatile("" : "+l"(pointer));
}
