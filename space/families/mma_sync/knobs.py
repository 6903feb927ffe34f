"""Knobs of `mma_sync` in enumeration order: those that rules read come first, free ones last.

Rows, columns, A and B are the kernel's. With `swap_ab` they are the problem's columns, rows, B and A.
"""

from __future__ import annotations

from typing import Final

from space.arch import LINE_BYTES
from space.knobs import Knob

RASTERS: Final = ("along_m", "along_n")
RASTER_ALONG_M, RASTER_ALONG_N = range(len(RASTERS))
COPIES: Final = ("cp_async", "tma")
COPIES_CP_ASYNC, COPIES_TMA = range(len(COPIES))

KNOBS: Final[tuple[Knob, ...]] = (
    Knob("swap_ab", (0, 1), 0, "compile", "whether the kernel computes the transposed product, with A and B exchanged"),
    Knob("unit_scales", (0, 1), 0, "compile",
         "whether fp8 is multiplied by the block-scaled instruction, with all scales 1"),
    Knob("copies", COPIES, "cp_async", "compile",
         "what fills the ring of stages: every thread by cp.async, or one thread of a producer by TMA"),
    Knob("tile_m", (16, 32, 64, 96, 128, 192, 256), 128, "compile", "rows of one tile of C"),
    Knob("tile_n", (8, 16, 32, 48, 64, 96, 128, 160, 192, 256), 128, "compile", "columns of one tile of C"),
    Knob("warps_m", (1, 2, 4), 2, "compile", "warps that split the rows of a tile"),
    Knob("warps_n", (1, 2, 4, 8), 2, "compile", "warps that split the columns of a tile"),
    Knob("tile_k", (16, 32, 64, 128, 256), 32, "compile", "elements of K that one pipeline stage holds"),
    Knob("swizzle", (0, 1), 1, "compile", "whether groups of 16 bytes are swizzled in shared memory"),
    Knob("stages", tuple(range(2, 13)), 3, "compile", "pipeline stages of the shared-memory ring"),
    Knob("blocks_per_sm", (1, 2, 3, 4, 6, 8), 1, "compile",
         "blocks per multiprocessor that the registers must allow"),
    Knob("split_k", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), 1, "launch",
         "slices of K that different blocks multiply; each block sums one share of the tile, in order, and writes it"),
    Knob("stream_k", (0, 1), 0, "compile",
         "whether all blocks share the stages of the tiles that do not fill whole waves"),
    Knob("persistent", (0, 1), 0, "launch", "whether each block computes several tiles; otherwise one"),
    Knob("raster", RASTERS, "along_m", "launch", "direction in which consecutive tiles run within a raster group"),
    Knob("raster_group", (1, 2, 4, 8, 16), 8, "launch",
         "rough width of raster groups in tiles: groups of one width share the grid"),
    Knob("prefetch_bytes", (0, LINE_BYTES, 2 * LINE_BYTES), LINE_BYTES, "compile",
         "bytes that a copy makes L2 fetch at least; 0 fetches what the copy needs"),
)  # fmt: skip
