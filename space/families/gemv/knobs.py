"""Knobs of `gemv` in enumeration order: those that rules read come first, free ones last."""

from __future__ import annotations

from typing import Final

from space.arch import LINE_BYTES, VECTOR_BYTES, WARP_THREADS
from space.knobs import Knob

A_PATHS: Final = ("smem", "cache")
CACHE_HINTS: Final = ("none", "evict_first")

A_SMEM, A_CACHE = range(len(A_PATHS))
HINT_NONE, HINT_EVICT_FIRST = range(len(CACHE_HINTS))
#: Rows of A that one pass over B can multiply.
MAX_ROWS: Final = 4

KNOBS: Final[tuple[Knob, ...]] = (
    Knob("rows", tuple(range(1, MAX_ROWS + 1)), 1, "compile", "rows of A; a thread holds one sum per row and column"),
    Knob("load_bytes", (1, 2, 4, 8, VECTOR_BYTES), VECTOR_BYTES, "compile", "bytes of a row of B per load"),
    Knob("warps", (1, 2, 4, 8, 16), 8, "compile", "warps per block"),
    Knob("split_warps", (1, 2, 4, 8, 16), 1, "compile", "warps that split K of their columns among them"),
    Knob("lanes", (4, 8, 16, WARP_THREADS), WARP_THREADS, "compile",
         "lanes of a warp that split K of a column among them"),
    Knob("columns", (1, 2, 4), 2, "compile",
         "neighbouring columns of C per lane, which share its loads of A"),
    Knob("unroll", (1, 2, 4, 8, 16), 4, "compile", "loads of each column in flight together"),
    Knob("buffers", (1, 2), 1, "compile",
         "sets of loads; with 2, the next set is in flight while the current one is multiplied"),
    Knob("blocks_per_sm", (1, 2, 3, 4, 6, 8, 16), 2, "compile",
         "blocks per multiprocessor that the registers must allow; a persistent grid has as many"),
    Knob("a_path", A_PATHS, "smem", "compile", "where A is read from: staged in shared memory, or through L1"),
    Knob("split_k", (1, 2, 4, 8, 16, 32), 1, "launch",
         "slices of K that different blocks multiply; the last block to finish sums them in order"),
    Knob("prefetch_bytes", (0, LINE_BYTES, 2 * LINE_BYTES), 2 * LINE_BYTES, "compile",
         "bytes that a load makes L2 fetch at least; 0 fetches what the load needs"),
    Knob("persistent", (0, 1), 0, "launch", "whether each block computes several tiles; otherwise one"),
    Knob("cache_hint", CACHE_HINTS, "none", "launch", "whether B streams through L2 without displacing other data"),
    Knob("prefetch_steps", (0, 1, 2, 4), 0, "launch",
         "steps of B that a block prefetches into L2 before the previous kernel has ended"),
    Knob("pdl", (0, 1), 0, "launch", "programmatic dependent launch: set up while the previous kernel still runs"),
)  # fmt: skip
