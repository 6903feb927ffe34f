"""Knobs of `sm90_wgmma`, in enumeration order: those that rules cut by come first, free ones last.

Rows, columns, A and B are the kernel's: with `swap_ab` they are the problem's columns, rows, B and A.
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
    Knob("swap_ab", (0, 1), 0, "compile", "whether the kernel computes the transposed product: A and B change places"),
    Knob("tile_m", (64, 128, 192, 256), 128, "compile", "rows of C that are computed together"),
    Knob("schedule", SCHEDULES, "cooperative", "compile",
         "who loads and who multiplies: a producer and consumers that split a tile, consumers that take turns with "
         "tiles, or no producer"),
    Knob("consumer_warpgroups", (1, 2, 3), 2, "compile", "warpgroups that multiply"),
    Knob("tile_n", wgmma.FLOAT_N, 128, "compile", "columns of C that are computed together"),
    Knob("instructions_n", (1, 2), 1, "compile", "wgmmas side by side across tile_n"),
    Knob("tile_k", (16, 32, 64, 128, 256), 64, "compile", "elements of K that one pipeline stage holds"),
    Knob("swizzle_a", tma.SWIZZLE_SPANS, 128, "compile", "shared-memory swizzle span of A, in bytes; 0 is none"),
    Knob("swizzle_b", tma.SWIZZLE_SPANS, 128, "compile", "shared-memory swizzle span of B, in bytes; 0 is none"),
    Knob("a_source", A_SOURCES, "smem", "compile", "where wgmma reads A: shared memory, or registers after ldmatrix"),
    Knob("producer_registers", (0, setmaxnreg.MIN_REGISTERS, 40), 40, "compile",
         "registers a thread that the producer keeps (setmaxnreg), consumers get the rest; 0 moves none"),
    Knob("cluster_m", (1, 2, 4), 1, "compile", "blocks of a cluster along M; they share B by multicast"),
    Knob("cluster_n", (1, 2, 4), 1, "compile", "blocks of a cluster along N; they share A by multicast"),
    Knob("cluster_k", (1, 2, 4, 8), 1, "compile",
         "blocks of a cluster along K; they multiply slices of one tile's K and add up in each other's shared memory"),
    Knob("split_k", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), 1, "launch",
         "slices of K that different blocks multiply; each adds up, in order, and writes a share of the tile"),
    Knob("epilogue", EPILOGUES, "tma", "compile",
         "how C leaves: direct register stores, or through shared memory and TMA, whole or by halves of the tile"),
    Knob("stream_k", (0, 1), 0, "compile",
         "whether a last wave of too few tiles is shared out: clusters without one multiply the ends of the others'"),
    Knob("stages", tuple(range(2, 17)), 4, "compile", "depth of the TMA ring"),
    Knob("raster", RASTERS, "along_m", "launch", "direction in which consecutive tiles walk inside a group"),
    Knob("raster_group", (1, 2, 4, 8, 16), 8, "launch", "width of a raster group, in cluster tiles"),
    Knob("cache_hint", CACHE_HINTS, "none", "launch", "which operand passes through L2 without displacing the other"),
    Knob("l2_promotion", tma.L2_PROMOTIONS, 256, "launch", "bytes that TMA asks L2 to fetch at least; 0 is as needed"),
    Knob("pdl", (0, 1), 0, "launch", "programmatic dependent launch: set up while the kernel before still runs; "
         "not where stream_k launches all blocks together"),
    Knob("prefetch_stages", (0, 4), 0, "compile",
         "stages that a block asks into L2 while the kernel before may still run"),
)  # fmt: skip
