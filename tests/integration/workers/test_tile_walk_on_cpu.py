"""The tile scheduler's own text, run on the CPU: every tile once, groups of one width, each beside the one before.

Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from space.explain import explain
from space.families.common import group_width
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.on_cpu import ALONE, compiled, needs_compiler
from workers.cuda.families import sm90_wgmma as launcher
from workers.cuda.families.arguments import TileGrid
from workers.kernels.flatten import flatten

pytestmark = needs_compiler

FAMILY = family_named("sm90_wgmma")
SHAPE = "template <class Config> struct Shape { static constexpr int kInStep = IN_STEP, kClusterSize = 1; };"
ENTRY = """
struct Config { static constexpr int kSplits = 0, kStreamK = 0, kClusterK = 1; };
struct Item { int m, n, batch, direction; };
extern "C" int walk(const WgmmaArguments* args, int cluster, int clusters, Item* items, int most) {
    TileWalk<Config> tiles(*args, cluster, clusters, 0);
    Tile tile;
    int count = 0;
    while (count < most && tiles.next(tile)) items[count++] = {tile.m, tile.n, tile.batch, tiles.direction};
    return count;
}
"""


class Item(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("m", "n", "batch", "direction"))


def library(in_step: bool, folder: Path) -> ctypes.CDLL:
    shape = SHAPE.replace("IN_STEP", str(int(in_step)))
    stubs = {"sm90_wgmma/shape.cuh": shape, "ptx/relaxed.cuh": ALONE}
    return compiled(flatten("sm90_wgmma/schedule.cuh", stubs) + ENTRY, folder)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(False, tmp_path_factory.mktemp("walk"))


@pytest.fixture(scope="module")
def by_strips(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(True, tmp_path_factory.mktemp("strips"))


def walked(
    kernel: ctypes.CDLL, tiles_m: int, tiles_n: int, raster: str, group: int, *,
    batch: int = 1, cluster: int = 0, clusters: int = 1, stages: int = 64,
) -> list[Item]:  # fmt: skip
    """The tiles of one cluster, in its order."""
    config = FAMILY.config({"raster": raster, "raster_group": group})
    derived = {"tiles_m": tiles_m, "tiles_n": tiles_n, "k_iterations": stages}
    tiles = tiles_m * tiles_n * batch
    given = launcher.WgmmaArguments(grid=TileGrid.of(config, derived, tiles, 1))
    items = (Item * tiles)()
    return list(items[: kernel.walk(ctypes.byref(given), cluster, clusters, items, tiles)])


@pytest.mark.parametrize("raster", ["along_m", "along_n"])
@pytest.mark.parametrize("group", [1, 4, 12])
@pytest.mark.parametrize("grid", [(1, 1), (5, 3), (16, 7), (17, 20), (33, 9)])
def test_every_tile_is_computed_once_and_the_next_group_begins_beside_the_end_of_the_last(
    kernel: ctypes.CDLL, grid: tuple[int, int], group: int, raster: str
) -> None:
    places = [(item.m, item.n) for item in walked(kernel, *grid, raster, group)]
    assert sorted(places) == list(product(range(grid[0]), range(grid[1])))
    slow = 1 if raster == "along_m" else 0
    assert all(abs(one[slow] - other[slow]) <= 1 for one, other in pairwise(places))


@pytest.mark.parametrize("raster", ["along_m", "along_n"])
@pytest.mark.parametrize("group", [1, 4, 12])
@pytest.mark.parametrize("grid", [(1, 1), (5, 3), (16, 7), (17, 20), (33, 9)])
def test_a_strip_is_four_steps_of_its_group(
    by_strips: ctypes.CDLL, grid: tuple[int, int], group: int, raster: str
) -> None:
    across, along = grid if raster == "along_m" else grid[::-1]
    width = int(group_width(np.asarray(across), np.asarray(group)))
    expected = []
    for number, first in enumerate(range(0, across, width)):
        steps = list(range(along))[:: 1 if number % 2 == 0 else -1]
        for strip in (steps[at : at + 4] for at in range(0, along, 4)):
            expected += list(product(range(first, min(first + width, across)), strip))
    found = walked(by_strips, *grid, raster, group, batch=2)
    places = [(item.m, item.n) if raster == "along_m" else (item.n, item.m) for item in found]
    assert places == 2 * expected
    assert [item.batch for item in found] == [0] * len(expected) + [1] * len(expected)


def test_short_tiles_are_walked_step_by_step(kernel: ctypes.CDLL, by_strips: ctypes.CDLL) -> None:
    found, plain = (walked(library, 16, 7, "along_m", 12, stages=47) for library in (by_strips, kernel))
    assert [(item.m, item.n) for item in found] == [(item.m, item.n) for item in plain]


def test_groups_have_one_width(kernel: ctypes.CDLL) -> None:
    columns: dict[int, list[int]] = {}
    for item in walked(kernel, 32, 3, "along_m", 12)[: 11 * 3]:
        columns.setdefault(item.n, []).append(item.m)
    assert columns == {n: list(range(11)) for n in range(3)}, "32 tiles make groups of 11, 11 and 10"


def test_of_the_most_tiles_that_are_legal_the_last_ends_the_walk(kernel: ctypes.CDLL) -> None:
    most, config = 2**30, FAMILY.config({})
    for batch, legal in ((most, True), (most + 1, False)):
        told = [broken.rule for broken in explain(FAMILY, Gemm.of(8, 8, 8, batch=batch), config).broken]
        assert told == ([] if legal else ["grid.tiles"])
    given = launcher.WgmmaArguments(
        grid=TileGrid.of(config, {"tiles_m": 1, "tiles_n": 1, "k_iterations": 1}, most, 1)
    )  # fmt: skip
    items = (Item * 2)()
    # As many clusters as tiles, as kernels have that are not persistent.
    assert kernel.walk(ctypes.byref(given), most - 1, most, items, len(items)) == 1
    assert items[0].batch == most - 1


def test_the_products_of_a_batch_begin_at_their_first_tile(kernel: ctypes.CDLL) -> None:
    items = walked(kernel, 8, 5, "along_m", 4, batch=2)
    assert [(item.m, item.n) for item in items if item.batch == 0] == [(i.m, i.n) for i in items if i.batch == 1]


def test_a_cluster_loads_its_tiles_forwards_and_backwards_in_turn(kernel: ctypes.CDLL) -> None:
    for cluster in range(6):
        items = walked(kernel, 7, 5, "along_n", 4, cluster=cluster, clusters=6)
        assert [item.direction for item in items] == [1, -1, 1, -1, 1, -1][: len(items)]
