"""Knobs of `gemv`, in enumeration order: those that rules cut by come first, free ones last."""

from __future__ import annotations

from typing import Final

from space.arch import LINE_BYTES, VECTOR_BYTES, WARP_THREADS
from space.knobs import Knob

A_PATHS: Final = ("smem", "cache")
CACHE_HINTS: Final = ("none", "evict_first")

A_SMEM, A_CACHE = range(len(A_PATHS))
HINT_NONE, HINT_EVICT_FIRST = range(len(CACHE_HINTS))
#: Rows of A that one pass over B can be multiplied with.
MOST_ROWS: Final = 4

KNOBS: Final[tuple[Knob, ...]] = (
    Knob("rows", tuple(range(1, MOST_ROWS + 1)), 1, "compile", "rows of A, each a sum a column that a thread holds"),
    Knob("load_bytes", (1, 2, 4, 8, VECTOR_BYTES), VECTOR_BYTES, "compile", "bytes of a row of B that one load brings"),
    Knob("warps", (1, 2, 4, 8, 16), 8, "compile", "warps of a block"),
    Knob("split_warps", (1, 2, 4, 8, 16), 1, "compile", "warps of a block that share the K of their columns"),
    Knob("lanes", (4, 8, 16, WARP_THREADS), WARP_THREADS, "compile", "lanes of a warp that share a column"),
    Knob("columns", (1, 2, 4), 2, "compile",
         "neighbouring columns of C that a lane works on; they share what it reads of A"),
    Knob("unroll", (1, 2, 4, 8, 16), 4, "compile", "loads of each column that are under way together"),
    Knob("buffers", (1, 2), 1, "compile", "sets of loads: with two, the next one is under way during the products"),
    Knob("blocks_per_sm", (1, 2, 3, 4, 6, 8, 16), 2, "compile",
         "blocks of a multiprocessor that registers are kept free for; a persistent grid has as many"),
    Knob("a_path", A_PATHS, "smem", "compile", "where A is read: staged in shared memory, or through L1"),
    Knob("split_k", (1, 2, 4, 8, 16, 32), 1, "launch",
         "slices of K that different blocks sum; the last to finish adds them in order"),
    Knob("prefetch_bytes", (0, LINE_BYTES, 2 * LINE_BYTES), 2 * LINE_BYTES, "compile",
         "bytes that a load asks L2 to fetch at least; 0 is as needed"),
    Knob("persistent", (0, 1), 0, "launch", "whether blocks walk over tiles; otherwise each has one"),
    Knob("cache_hint", CACHE_HINTS, "none", "launch", "whether B passes through L2 without displacing what is there"),
    Knob("prefetch_steps", (0, 1, 2, 4), 0, "launch",
         "steps of B that a block asks into L2 before the kernel before it has ended"),
    Knob("pdl", (0, 1), 0, "launch", "programmatic dependent launch: set up while the kernel before still runs"),
)  # fmt: skip
