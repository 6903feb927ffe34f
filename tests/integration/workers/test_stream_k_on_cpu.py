"""Stream-K's own text, run on the CPU: every stage of every tile is multiplied once and reaches C.

Products are stood in for: a stage of a tile adds 1 to each of its sums. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.broken_configs import SHARED
from tests.on_cpu import HEADERS, compiled, config_struct, needs_compiler
from workers.cuda.families import arguments
from workers.cuda.families import sm90_wgmma as launcher
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

pytestmark = needs_compiler

FAMILY = family_named("sm90_wgmma")
CONFIG = FAMILY.config(SHARED | {"tile_m": 64, "tile_n": 64, "stages": 2})
PTX = """
template <bool> void stmatrix_x4(u32, u32, u32, u32, u32);
template <bool> void stmatrix_x2(u32, u32, u32);
template <int> void wgmma_wait_group();
template <int> u64 wgmma_descriptor(u32, u32, u32);
inline void bar_sync(int, int) { __syncthreads(); }
inline u64 atom_add_acq_rel(u64* at, u64 addend) { return (*at += addend) - addend; }
inline u64 ld_acquire(const u64* at) { return *at; }
"""
STUBBED = ("ptx/barrier.cuh", "ptx/tma.cuh", "ptx/wgmma.cuh", "ptx/wgmma_mma_async.cuh", "ptx/mbarrier.cuh")
ENTRY = """
struct Item { int index, m, n, k, k_end, peer; };
extern "C" int walk(const WgmmaArguments* args, int cluster, int clusters, Item* items) {
    TileWalk<Config> tiles(*args, cluster, clusters, 0);
    Tile tile;
    int count = 0;
    while (tiles.next(tile)) items[count++] = {tile.index, tile.m, tile.n, tile.k, tile.k_end, tile.split};
    return count;
}
extern "C" void share(const WgmmaArguments* args, const Item* item) {
    run_grid(1, [=] {
        typename Fragment<Config>::Accumulators d;
        for (auto& block : d) for (auto& sum : block) sum = item->k_end - item->k;
        const StreamK<Config> part(*args, item->index - args->shared.first, 0, 1);
        if (item->k > 0) part.store(item->peer, d);
        else part.fix_up(Finish<Config>{*args, 0}, item->m * Config::kTileM, item->n * Config::kTileN, d);
    }, 128);
}
"""


class Item(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("index", "m", "n", "k", "k_end", "peer"))


class Grid(NamedTuple):
    """Cluster tiles across and along, how many clusters run at once, and the stages of a tile."""

    tiles_m: int
    tiles_n: int
    clusters: int
    k_stages: int


#: Owners many, few, and one; peers of several tiles, and of a part of one; a last wave that is full, and a single one.
GRIDS = [Grid(3, 5, 8, 64), Grid(4, 5, 16, 24), Grid(3, 3, 8, 48), Grid(5, 3, 8, 9), Grid(7, 4, 9, 100),
         Grid(4, 4, 8, 16), Grid(2, 3, 8, 16), Grid(9, 13, 66, 3)]  # fmt: skip


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    problem = Gemm.parse("256x256x4096", "bf16,bf16,f32,f32")
    assert explain(FAMILY, problem, CONFIG).legal
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(problem, CONFIG))
    stubs = dict.fromkeys(STUBBED, "//") | {"ptx/matrix.cuh": PTX, "ptx/atomic.cuh": "//"}
    stubs["ptx/convert.cuh"] = (HEADERS / "ptx_on_cpu.h").read_text()
    text = flatten("sm90_wgmma/stream_k.cuh", stubs) + config_struct(source) + ENTRY
    # Permissive, because unused templates contain unknown PTX names.
    return compiled(text, tmp_path_factory.mktemp("stream_k"), "-fpermissive")


def walks(kernel: ctypes.CDLL, grid: Grid, given: ctypes.Structure) -> list[list[Item]]:
    found = []
    for cluster in range(grid.clusters):
        items = (Item * (grid.tiles_m * grid.tiles_n * 2))()
        count = kernel.walk(ctypes.byref(given), cluster, grid.clusters, items)
        found.append(list(items[:count]))
    return found


def arguments_of(grid: Grid, c: npt.NDArray[np.float32], partials: npt.NDArray[np.float32],
                 semaphores: npt.NDArray[np.uint64]) -> ctypes.Structure:  # fmt: skip
    tiles, divider = grid.tiles_m * grid.tiles_n, arguments.Divider.of
    numbered = arguments.TileGrid(
        tiles=tiles, k_stages=grid.k_stages, last_group=0, splits=divider(1), product=divider(tiles),
        group=divider(tiles), width=divider(grid.tiles_m), last_width=divider(grid.tiles_m),
    )  # fmt: skip
    given: ctypes.Structure = launcher.WgmmaArguments(
        c=c.ctypes.data, partials=partials.ctypes.data, semaphores=semaphores.ctypes.data, ldc=c.shape[1], m=c.shape[0],
        n=c.shape[1], alpha=1.0, grid=numbered, shared=launcher.SharedTiles.of(tiles, grid.clusters, grid.k_stages),
    )  # fmt: skip
    return given


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_every_stage_is_multiplied_once_and_arrives(kernel: ctypes.CDLL, grid: Grid) -> None:
    tile_m, tile_n = CONFIG.number("tile_m"), CONFIG.number("tile_n")
    c = np.full((grid.tiles_m * tile_m, grid.tiles_n * tile_n), np.nan, np.float32)
    partials = np.full(2 * grid.clusters * tile_m * tile_n, np.nan, np.float32)
    semaphores = np.zeros((grid.clusters, 2), np.uint64)
    given = arguments_of(grid, c, partials, semaphores)
    items = walks(kernel, grid, given)
    multiplied = np.zeros((grid.tiles_m * grid.tiles_n, grid.k_stages), int)
    for item in (item for walk in items for item in walk):
        multiplied[item.index, item.k : item.k_end] += 1
    assert (multiplied == 1).all()
    # Peers have stored their sums before any owner comes to its shared tile.
    shared = [item for walk in items for item in walk if item.k_end - item.k < grid.k_stages]
    for item in sorted(shared, key=lambda item: item.k == 0):
        kernel.share(ctypes.byref(given), ctypes.byref(item))
        if item.k == 0:
            written = c[item.m * tile_m : (item.m + 1) * tile_m, item.n * tile_n : (item.n + 1) * tile_n]
            assert (written == grid.k_stages).all()
    assert not semaphores.any()


@pytest.mark.parametrize("grid", [grid for grid in GRIDS if grid.tiles_m * grid.tiles_n > grid.clusters], ids=str)
def test_peers_begin_with_what_they_share_and_owners_end_with_a_tile_of_their_own(
    kernel: ctypes.CDLL, grid: Grid
) -> None:
    nothing = np.zeros((1, 1), np.float32)
    given = arguments_of(grid, nothing, nothing, np.zeros((1, 2), np.uint64))
    for walk in walks(kernel, grid, given):
        own = [item.k_end - item.k == grid.k_stages for item in walk]
        if walk[0].k > 0:
            assert own == sorted(own)
        elif not all(own):
            assert own.index(False) == len(own) - 2
        assert all(one.index != two.index for one, two in pairwise(walk))


def test_clusters_have_about_as_much_to_do(kernel: ctypes.CDLL) -> None:
    grid = Grid(16, 64, 132, 64)
    nothing = np.zeros((1, 1), np.float32)
    given = arguments_of(grid, nothing, nothing, np.zeros((1, 2), np.uint64))
    stages = [sum(item.k_end - item.k for item in walk) for walk in walks(kernel, grid, given)]
    assert max(stages) - min(stages) <= 64 // 4
    assert max(stages) < 64 * 8 * 0.98
