"""What CUTLASS's library generator instantiates for 16-bit GEMMs of Hopper, as a family of our own machinery.

Choices, levels and rules are those of NVIDIA/cutlass, `python/cutlass_library`: `sm90_shapes.py` says from which
level a choice is generated, `is_tile_desc_valid` of `sm90_utils.py` which tiles are kept. What is counted is
tile and cluster, before schedules, layouts and data types multiply them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from space.columns import BoolColumn, Columns, Derived, IntColumn
from space.enumerate import enumerate_space
from space.instructions.wgmma import FLOAT_N, M
from space.kinds.gemm import Gemm
from space.knobs import Knob
from space.plug import Family
from space.rules import Rule

SHAPES = "sm90_shapes.py"
UTILS = "sm90_utils.py, is_tile_desc_valid"
K = 16
PROBLEM = Gemm.of(4096, 4096, 4096, "fp16")

#: N of the instruction, by level.
N_LEVELS = {n: {128: 0, 256: 1, 8: 2, 16: 2, 32: 2, 64: 2}.get(n, 3) for n in FLOAT_N}
#: Instructions of a tile along M, N and K, by level.
MULTIPLIER_LEVELS = {
    (2, 1, 4): 0, (1, 1, 4): 1, (4, 1, 4): 2, (2, 2, 4): 3,
    (2, 1, 8): 4, (4, 1, 8): 4, (1, 1, 8): 4, (2, 2, 8): 4,
    (2, 1, 16): 5, (4, 1, 16): 5, (1, 1, 16): 5, (2, 2, 16): 5,
}  # fmt: skip
#: Blocks of a cluster along M and N, by level.
CLUSTER_LEVELS = {
    (1, 2): 0, (2, 1): 1, (1, 1): 2, (2, 2): 3, (1, 4): 3, (4, 1): 3,
    (2, 4): 4, (4, 2): 4, (1, 8): 4, (8, 1): 4, (4, 4): 5,
}  # fmt: skip

KNOBS = (
    Knob("instruction_n", tuple(N_LEVELS), 128, "compile", "N of one wgmma"),
    Knob("multiplier", tuple(map(str, MULTIPLIER_LEVELS)), "(2, 1, 4)", "compile", "instructions along M, N and K"),
    Knob("cluster", tuple(map(str, CLUSTER_LEVELS)), "(1, 2)", "compile", "blocks of a cluster along M and N"),
)


def picked(choices: Mapping[tuple[int, ...], int], place: int, codes: IntColumn) -> IntColumn:
    """One extent of the choices that codes stand for."""
    return np.array([choice[place] for choice in choices])[codes]


def derived(name: str, reads: tuple[str, ...], compute: Callable[[Columns], IntColumn]) -> Derived:
    return Derived(name, reads, compute, False, name)


DERIVED = (
    derived("tile_m", ("multiplier",), lambda c: M * picked(MULTIPLIER_LEVELS, 0, c["multiplier"])),
    derived("tile_n", ("multiplier", "instruction_n"),
            lambda c: c["instruction_n"] * picked(MULTIPLIER_LEVELS, 1, c["multiplier"])),
    derived("tile_k", ("multiplier",), lambda c: K * picked(MULTIPLIER_LEVELS, 2, c["multiplier"])),
    derived("cluster_rows", ("tile_m", "cluster"), lambda c: c["tile_m"] * picked(CLUSTER_LEVELS, 0, c["cluster"])),
    derived("cluster_columns", ("tile_n", "cluster"), lambda c: c["tile_n"] * picked(CLUSTER_LEVELS, 1, c["cluster"])),
)  # fmt: skip


def rule(id_: str, sentence: str, source: str, reads: tuple[str, ...], holds: Callable[[Columns], Any]) -> Rule:
    return Rule(id_, sentence, source, reads, holds, lambda c: sentence)


def level_rule(knob: str, levels: Mapping[Any, int], most: int) -> Rule:
    """A choice is generated from its level on; words stand as codes, numbers as themselves."""
    allowed = [value if isinstance(value, int) else code for code, (value, level) in enumerate(levels.items())
               if level <= most]  # fmt: skip

    def holds(c: Columns) -> BoolColumn:
        return np.isin(c[knob], allowed)

    return rule(f"level.{knob}", f"{knob} is of level {most} or below", SHAPES, (knob,), holds)


#: For 16-bit operands. The last two stand in for "two stages fit".
TILE_RULES = (
    rule("tile.n", "a tile is at least 16 wide, in steps of 8", UTILS, ("tile_n",),
         lambda c: (c["tile_n"] >= 16) & (c["tile_n"] % 8 == 0)),
    rule("tile.extent", "no extent of a tile exceeds 256", UTILS, ("tile_m", "tile_n", "tile_k"),
         lambda c: np.maximum(np.maximum(c["tile_m"], c["tile_n"]), c["tile_k"]) <= 256),
    rule("stages.deep", "a cluster of 128 rows or columns stays below 256 of K", UTILS,
         ("cluster_rows", "cluster_columns", "tile_k"),
         lambda c: (c["tile_k"] < 256) | ((c["cluster_rows"] < 128) & (c["cluster_columns"] < 128))),
    rule("stages.large", "a cluster of 256 rows and columns stays below 128 of K", UTILS,
         ("cluster_rows", "cluster_columns", "tile_k"),
         lambda c: (c["tile_k"] < 128) | (c["cluster_rows"] < 256) | (c["cluster_columns"] < 256)),
)  # fmt: skip


def generated(n_level: int, multiplier_level: int, cluster_level: int) -> set[tuple[int, ...]]:
    """(tile_m, tile_n, tile_k, cluster_m, cluster_n) of all that is generated at a level of each choice."""
    levels = (
        level_rule("instruction_n", N_LEVELS, n_level),
        level_rule("multiplier", MULTIPLIER_LEVELS, multiplier_level),
        level_rule("cluster", CLUSTER_LEVELS, cluster_level),
    )
    family = Family("cutlass", frozenset({"sm_90a"}), KNOBS, DERIVED, (*levels, *TILE_RULES),
                    lambda c, device: np.zeros(len(c)))  # fmt: skip
    c = enumerate_space(family, PROBLEM).columns
    extents = [c["tile_m"], c["tile_n"], c["tile_k"]]
    extents += [picked(CLUSTER_LEVELS, place, c["cluster"]) for place in (0, 1)]
    return set(zip(*(column.tolist() for column in extents), strict=True))
