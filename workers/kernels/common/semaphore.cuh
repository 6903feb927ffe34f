// Semaphores in device memory: how blocks that multiply parts of one tile's K learn of one another.
#pragma once

#include "common/types.cuh"

/// One semaphore per part of a tile. Every launch finds both words 0 and leaves them 0.
struct Semaphore {
    u64 arrived;       // low half: slices whose sums are in memory; high half: a bit per slice that withdrew
    u64 acknowledged;  // slices that have seen all others arrive
};
