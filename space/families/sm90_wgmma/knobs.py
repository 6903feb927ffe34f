"""Knobs of `sm90_wgmma`, in enumeration order."""

from __future__ import annotations

from typing import Final

from space.knobs import Knob

EPILOGUES: Final = ("direct", "tma")
RASTERS: Final = ("along_m", "along_n")

EPILOGUE_DIRECT, EPILOGUE_TMA = range(len(EPILOGUES))
RASTER_ALONG_M, RASTER_ALONG_N = range(len(RASTERS))

KNOBS: Final[tuple[Knob, ...]] = (
    Knob("tile_m", (64, 128, 192, 256), 128, "compile", "rows of C that one block computes at a time"),
    Knob("consumer_warpgroups", (1, 2, 3), 2, "compile", "warpgroups that multiply; they split tile_m"),
    Knob("tile_n", tuple(range(8, 257, 8)), 128, "compile", "columns of C per tile, and N of the instruction"),
    Knob("tile_k", (32, 64, 128), 64, "compile", "elements of K that one pipeline stage holds"),
    Knob("swizzle_a", (32, 64, 128), 128, "compile", "shared-memory swizzle span of A, in bytes"),
    Knob("swizzle_b", (32, 64, 128), 128, "compile", "shared-memory swizzle span of B, in bytes"),
    Knob("epilogue", EPILOGUES, "tma", "compile", "how C leaves: direct register stores, or stmatrix and TMA"),
    Knob("stages", tuple(range(2, 17)), 4, "compile", "depth of the TMA ring"),
    Knob("cluster_m", (1, 2, 4), 1, "compile", "blocks of a cluster along M; they share B by multicast"),
    Knob("cluster_n", (1, 2, 4), 1, "compile", "blocks of a cluster along N; they share A by multicast"),
    Knob("raster", RASTERS, "along_m", "launch", "direction in which consecutive tiles walk inside a group"),
    Knob("raster_group", (1, 2, 4, 8, 16), 8, "launch", "width of a raster group, in cluster tiles"),
)
