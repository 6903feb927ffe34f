"""Knobs of `sm90_wgmma` in enumeration order: those that rules read come first, free ones last.

Rows, columns, A and B are the kernel's. With `swap_ab` they are the problem's columns, rows, B and A.
"""

from __future__ import annotations

from typing import Final

from space.instructions import setmaxnreg, tma, wgmma
from space.knobs import Knob

SCHEDULES: Final = ("cooperative", "pingpong", "multistage")
A_SOURCES: Final = ("smem", "registers")
EPILOGUES: Final = ("direct", "tma", "tma_half")
RASTERS: Final = ("along_m", "along_n")
CACHE_HINTS: Final = ("none", "stream_a", "stream_b")

SCHEDULE_COOPERATIVE, SCHEDULE_PINGPONG, SCHEDULE_MULTISTAGE = range(len(SCHEDULES))
A_SMEM, A_REGISTERS = range(len(A_SOURCES))
EPILOGUE_DIRECT, EPILOGUE_TMA, EPILOGUE_TMA_HALF = range(len(EPILOGUES))
RASTER_ALONG_M, RASTER_ALONG_N = range(len(RASTERS))
HINT_NONE, HINT_STREAM_A, HINT_STREAM_B = range(len(CACHE_HINTS))

KNOBS: Final[tuple[Knob, ...]] = (
    Knob("swap_ab", (0, 1), 0, "compile", "whether the kernel computes the transposed product, with A and B exchanged"),
    Knob("tile_m", (64, 128, 192, 256), 128, "compile", "rows of one tile of C"),
    Knob("schedule", SCHEDULES, "cooperative", "compile",
         "cooperative: a producer loads, consumers split each tile; pingpong: consumers take turns with tiles; "
         "multistage: no producer, consumers also load"),
    Knob("consumer_warpgroups", (1, 2, 3), 2, "compile", "warpgroups that multiply"),
    Knob("tile_n", wgmma.FLOAT_N, 128, "compile", "columns of one tile of C"),
    Knob("instructions_n", (1, 2), 1, "compile", "wgmma instructions side by side across tile_n"),
    Knob("tile_k", (16, 32, 64, 128, 256, 512), 64, "compile", "elements of K that one pipeline stage holds"),
    Knob("swizzle_a", tma.SWIZZLE_SPANS, 128, "compile", "shared-memory swizzle span of A, in bytes; 0 is none"),
    Knob("swizzle_b", tma.SWIZZLE_SPANS, 128, "compile", "shared-memory swizzle span of B, in bytes; 0 is none"),
    Knob("a_source", A_SOURCES, "smem", "compile",
         "where wgmma reads A: from shared memory, or from registers after ldmatrix"),
    Knob("producer_registers", (0, setmaxnreg.MIN_REGISTERS, 40), 40, "compile",
         "registers per thread that the producer keeps; setmaxnreg gives consumers the rest; 0 moves none"),
    Knob("cluster_m", (1, 2, 4), 1, "compile", "blocks of a cluster along M, which share B by multicast"),
    Knob("cluster_n", (1, 2, 4), 1, "compile", "blocks of a cluster along N, which share A by multicast"),
    Knob("cluster_k", (1, 2, 4, 8), 1, "compile",
         "blocks of a cluster along K, which multiply slices of one tile and sum them through shared memory"),
    Knob("split_k", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), 1, "launch",
         "slices of K that different blocks multiply; each block sums one share of the tile, in order, and writes it"),
    Knob("epilogue", EPILOGUES, "tma", "compile",
         "how C is written: straight from registers, or through shared memory by TMA, a tile or half a tile at a time"),
    Knob("stream_k", (0, 1), 0, "compile",
         "whether a partial last wave is shared: clusters without a tile multiply the ends of the others' tiles"),
    Knob("stages", tuple(range(2, 17)), 4, "compile", "pipeline stages of the shared-memory ring"),
    Knob("raster", RASTERS, "along_m", "launch", "direction in which consecutive tiles run within a raster group"),
    Knob("raster_group", (1, 2, 4, 8, 12, 16), 8, "launch",
         "rough width of raster groups in cluster tiles: groups of one width share the grid"),
    Knob("cache_hint", CACHE_HINTS, "none", "launch", "operand that streams through L2 without displacing the other"),
    Knob("l2_promotion", tma.L2_PROMOTIONS, 256, "launch",
         "bytes that a TMA load makes L2 fetch at least; 0 fetches what the load needs"),
    Knob("pdl", (0, 1), 0, "launch", "programmatic dependent launch: set up while the previous kernel still runs; "
         "ignored with stream_k, which launches all blocks together"),
    Knob("prefetch_stages", (0, 4), 0, "compile",
         "stages that a block prefetches into L2 while the previous kernel may still run"),
)  # fmt: skip
