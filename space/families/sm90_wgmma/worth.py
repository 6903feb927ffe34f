"""What is legal but not worth trying in `sm90_wgmma`: another candidate is as fast or faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from space.columns import BoolColumn, Columns, IntColumn
from space.families.sm90_wgmma.derive import BARRIER_BYTES_PER_STAGE
from space.families.sm90_wgmma.knobs import EPILOGUE_TMA, KNOBS, RASTER_ALONG_M
from space.problem import DTYPE_BYTES
from space.rules import Rule

#: Deeper rings than this hide no more latency: 12 stages of 16 KiB are in flight long before they are used.
MOST_STAGES: Final = 12
#: A tile may compute this many times the elements of C that are there.
MOST_PADDING: Final = 1.35


def _most_stages(c: Columns) -> IntColumn:
    """Stages that fit beside the C tile."""
    c_bytes = np.where(c["epilogue"] == EPILOGUE_TMA, c["tile_m"] * c["tile_n"] * DTYPE_BYTES[c.problem.dtype_c], 0)
    free = c.arch.smem_per_block_bytes - c_bytes
    return np.minimum(free // (c["stage_bytes"] + BARRIER_BYTES_PER_STAGE), MOST_STAGES)


def _padded(c: Columns) -> IntColumn:
    rows = c["tiles_m"] * c["tile_m"] * c["cluster_m"]
    return rows * c["tiles_n"] * c["tile_n"] * c["cluster_n"]


def _least_padded(c: Columns) -> int:
    """Elements that the smallest tile computes, so that tiny problems keep candidates."""
    return -(-c.problem.m // 64) * 64 * -(-c.problem.n // 8) * 8


def _stages_deep(c: Columns) -> BoolColumn:
    useful = np.maximum(np.minimum(_most_stages(c), np.maximum(c["k_iterations"], 2)), 2)
    return (c["stages"] <= useful) & (c["stages"] >= useful - 1)


def _raster_group_distinct(c: Columns) -> BoolColumn:
    """One name for one order: a group as wide as the grid is one order, however wide it is."""
    across = np.where(c["raster"] == RASTER_ALONG_M, c["tiles_m"], c["tiles_n"])
    groups = np.array(next(knob for knob in KNOBS if knob.name == "raster_group").domain)
    smallest_covering = groups[np.minimum(np.searchsorted(groups, across), len(groups) - 1)]
    return c["raster_group"] <= smallest_covering


def _word(name: str, number: int) -> str:
    """A knob's number as the person wrote it."""
    return str(next((knob.decode(number) for knob in KNOBS if knob.name == name), f"{number:,}"))


def _worth(id_: str, sentence: str, why: str, reads: tuple[str, ...], holds: Callable[[Columns], BoolColumn]) -> Rule:
    def numbers(c: Columns) -> str:
        return ", ".join(f"{name} {_word(name, int(c[name][0]))}" for name in reads)

    return Rule(id_, sentence, why, reads, holds, numbers, kind="worth")


WORTH: Final[tuple[Rule, ...]] = (
    _worth("worth.tile_n_step", "tiles above 128 columns differ in steps of 16",
           "a step of 8 changes less than 3 % of the work of a tile", ("tile_n",),
           lambda c: (c["tile_n"] <= 128) | (c["tile_n"] % 16 == 0)),
    _worth("worth.tile_k", "a stage holds one 128-byte line of K, or two when the tile is small",
           "shorter stages pay a barrier more often; longer ones only help where a stage is brief",
           ("tile_m", "tile_n", "tile_k"),
           lambda c: (c["tile_k"] == 64) | ((c["tile_k"] == 128) & (c["tile_m"] * c["tile_n"] <= 128 * 128))),
    _worth("worth.swizzle_a", "A is swizzled over the widest span", "narrower spans conflict in shared memory",
           ("swizzle_a",), lambda c: c["swizzle_a"] == 128),
    _worth("worth.swizzle_b", "B is swizzled over the widest span", "narrower spans conflict in shared memory",
           ("swizzle_b",), lambda c: c["swizzle_b"] == 128),
    _worth("worth.instruction_n", "wide tiles are not cut into thin ones", 
           "below N = 64 the instruction waits for shared memory; thin tiles pay where C is narrow or rows are few",
           ("tile_n",),
           lambda c: (c["tile_n"] >= 64) | np.bool_(c.problem.n <= 512 or c.problem.m <= 512)),
    _worth("worth.padding", "tiles compute at most 1.35 times the elements of C that the smallest tile would",
           "padding is computed and thrown away", ("tiles_m", "tiles_n", "tile_m", "tile_n", "cluster_m", "cluster_n"),
           lambda c: _padded(c) <= MOST_PADDING * _least_padded(c)),
    _worth("worth.stages", "the ring is as deep as fits and is useful, or one less",
           "measured by others on this GPU: the last stage is sometimes worth -5 %, never the last two",
           ("stages", "stage_bytes", "epilogue", "tile_m", "tile_n", "k_iterations"), _stages_deep),
    _worth("worth.cluster", "clusters are single blocks, pairs, or squares of four",
           "longer clusters strand multiprocessors and share no more than a pair does",
           ("cluster_m", "cluster_n"),
           lambda c: (c["cluster_m"] <= 2) & (c["cluster_n"] <= 2)),
    _worth("worth.raster_group", "no wider group than the grid of tiles", "it names the same order twice",
           ("raster", "raster_group", "tiles_m", "tiles_n"), _raster_group_distinct),
    _worth("worth.raster_step", "groups grow in factors of four", "neighbouring widths differ by less than 1 %",
           ("raster_group",), lambda c: np.isin(c["raster_group"], (1, 4, 16))),
)  # fmt: skip
