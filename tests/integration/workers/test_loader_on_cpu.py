"""The loading side's own text, run on the CPU: a block asks TMA for every stage of its walk once, in its direction.

TMA is stood in for by a log. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.broken_configs import SHARED
from tests.on_cpu import ALONE, HEADERS, compiled, config_struct, needs_compiler
from workers.cuda.families import sm90_wgmma as launcher
from workers.cuda.families.arguments import TileGrid
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

pytestmark = needs_compiler

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("1000x700x1700", "bf16,bf16,f32,f32", batch=2)
#: Every way to cut a tile's K, a shared operand, and the schedule without a producer.
KNOBS: dict[str, dict[str, object]] = {
    "whole": {"prefetch_stages": 4, "tile_n": 96},
    "splits": {"prefetch_stages": 4, "split_k": 3, "tile_n": 96, "epilogue": "direct"},
    "cluster": {"prefetch_stages": 4, "cluster_m": 2, "raster": "along_n", "raster_group": 4},
    "cluster_k": {"cluster_k": 4, "tile_m": 64, "consumer_warpgroups": 1, "producer_registers": 0,
                  "epilogue": "direct"},
    "multistage": {"schedule": "multistage", "tile_m": 64, "tile_n": 64, "consumer_warpgroups": 1,
                   "producer_registers": 0},
    "shared": SHARED | {"tile_m": 64, "tile_n": 64, "stages": 2},
}  # fmt: skip
PTX = """
struct Load { int operand, prefetched, x, y, batch; };
inline Load* logged;
inline int loads;
inline void note(const CUtensorMap* map, int prefetched, int x, int y, int batch) {
    logged[loads++] = {int(reinterpret_cast<unsigned long long>(map)), prefetched, x, y, batch};
}
inline void mbarrier_wait(u64*, u32) {}
inline void mbarrier_arrive_expect_tx(u64*, u32) {}
inline void tma_load_3d(void*, const CUtensorMap* map, u64*, int x, int y, int z, u64) { note(map, 0, x, y, z); }
inline void tma_load_3d_multicast(void*, const CUtensorMap* map, u64*, int x, int y, int z, u16, u64) {
    note(map, 0, x, y, z);
}
inline void tma_prefetch_3d(const CUtensorMap* map, int x, int y, int z, u64) { note(map, 1, x, y, z); }
"""
ENTRY = """
struct Item { int m, n, batch, k, k_end, direction; };
extern "C" int load(const WgmmaArguments* args, int cluster, int clusters, int rank, Load* to) {
    alignas(1024) static unsigned char smem[sizeof(SharedMemory<Config>)];
    const ClusterPlace<Config> place(rank);
    Loader<Config> ahead(reinterpret_cast<SharedMemory<Config>&>(smem), reinterpret_cast<CUtensorMap*>(1),
                         reinterpret_cast<CUtensorMap*>(2), *args, place,
                         TileWalk<Config>(*args, cluster, clusters, place.k));
    logged = to;
    loads = 0;
    if (Shape<Config>::kMulticasts) ahead.begin();
    ahead.prefetch();
    while (ahead.issue()) {
    }
    return loads;
}
extern "C" int walk(const WgmmaArguments* args, int cluster, int clusters, int rank, Item* items) {
    TileWalk<Config> tiles(*args, cluster, clusters, ClusterPlace<Config>(rank).k);
    Tile tile;
    int count = 0;
    while (tiles.next(tile)) items[count++] = {tile.m, tile.n, tile.batch, tile.k, tile.k_end, tiles.direction};
    return count;
}
"""
ITEM = np.dtype([(name, np.int32) for name in ("m", "n", "batch", "k", "k_end", "direction")])
BOX = ["x", "y", "batch"]
LOAD = np.dtype([(name, np.int32) for name in ("operand", "prefetched", "x", "y", "batch")])


@pytest.fixture(params=KNOBS)
def named(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def library(named: str, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    config = FAMILY.config(KNOBS[named])
    broken = explain(FAMILY, PROBLEM, config).broken
    assert broken == (), broken
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(PROBLEM, config))
    stubs = {"ptx/mbarrier.cuh": "//", "ptx/tma.cuh": PTX, "ptx/relaxed.cuh": ALONE,
             "ptx/convert.cuh": (HEADERS / "ptx_on_cpu.h").read_text()}  # fmt: skip
    text = flatten("sm90_wgmma/load.cuh", stubs) + config_struct(source) + ENTRY
    return compiled(text, tmp_path_factory.mktemp("loader"), "-fpermissive")


def rows(entry: Callable[..., int], kind: np.dtype, given: ctypes.Structure, *numbers: int) -> np.ndarray:
    found = np.zeros(100_000, kind)
    return found[: entry(ctypes.byref(given), *numbers, ctypes.c_void_p(found.ctypes.data))]


def test_a_block_loads_the_stages_of_its_walk_in_their_direction(named: str, library: ctypes.CDLL) -> None:
    config = FAMILY.config(KNOBS[named])
    number, derived = config.number, FAMILY.derive(PROBLEM, config)
    stages, tiles = derived["k_iterations"], derived["tiles_m"] * derived["tiles_n"] * PROBLEM.batch * number("split_k")
    clusters = tiles if number("cluster_k") > 1 else 33
    given = launcher.WgmmaArguments(
        grid=TileGrid.of(config, derived, tiles, number("split_k") * number("cluster_k")),
        shared=launcher.SharedTiles.of(tiles, clusters, stages) if number("stream_k") else launcher.SharedTiles.none(),
    )
    directions = set()
    for cluster, rank in product(range(clusters), range(derived["cluster_size"])):
        loads = rows(library.load, LOAD, given, cluster, clusters, rank)
        items = rows(library.walk, ITEM, given, cluster, clusters, rank)
        directions |= set(items["direction"].tolist())
        walked = [(item, k) for item in items for k in list(range(item["k"], item["k_end"]))[:: item["direction"]]]
        places = {"m": rank % number("cluster_m"), "n": rank // number("cluster_m") % number("cluster_n")}
        for operand, (side, place) in enumerate(places.items(), start=1):
            own = loads[loads["operand"] == operand]
            issued, early = own[own["prefetched"] == 0], own[own["prefetched"] == 1]
            assert issued["batch"].tolist() == [item["batch"] for item, _ in walked]
            assert issued["x"].tolist() == [k * number("tile_k") for _, k in walked]
            tile = [item[side] * number(f"cluster_{side}") + place for item, _ in walked]
            assert (issued["y"] // number(f"tile_{side}")).tolist() == tile
            assert len(early) == min(number("prefetch_stages"), items[0]["k_end"] - items[0]["k"])
            assert early[BOX].tolist() == issued[BOX][: len(early)].tolist(), "what is prefetched is loaded first"
    assert directions == ({1} if clusters == tiles else {1, -1})
