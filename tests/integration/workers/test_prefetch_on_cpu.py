"""The prefetching side's own text, run on the CPU: every cluster asks L2 for the first stages of its first tile.

Prefetches are stood in for by a log. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from space.config import Config
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.on_cpu import ALONE, compiled, config_struct, needs_compiler
from workers.cuda.families import sm90_wgmma as launcher
from workers.cuda.families.arguments import TileGrid
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

pytestmark = needs_compiler

FAMILY = family_named("sm90_wgmma")
#: Weights whose last rows and last stage are not whole, and those that are the problem's A.
FEW_ROWS, FEW_COLUMNS = Gemm.parse("24x712x1736", batch=2), Gemm.parse("712x24x1736", batch=2)
#: 1,736 elements of K are 28 stages of 64.
KNOBS: dict[str, dict[str, object]] = {
    "swapped": {"swap_ab": 1, "tile_m": 64, "tile_n": 24, "consumer_warpgroups": 1, "producer_registers": 0},
    "as it is": {"tile_n": 96},
    "all of K": {"tile_k": 256, "tile_n": 40, "stages": 2, "prefetch_stages": 8},
    "slices": {"split_k": 3, "tile_n": 96, "epilogue": "direct", "prefetch_stages": 12},
    "cluster along K": {"cluster_k": 4, "tile_m": 64, "tile_n": 24, "swap_ab": 1, "consumer_warpgroups": 1,
                        "producer_registers": 0, "epilogue": "direct"},
    "A shared by multicast": {"swap_ab": 1, "tile_n": 24, "cluster_n": 2},
    "B shared by multicast": {"tile_n": 96, "cluster_m": 2},
    "without a producer": {"schedule": "multistage", "tile_m": 64, "tile_n": 64, "consumer_warpgroups": 1,
                           "producer_registers": 0, "split_k": 3, "epilogue": "direct", "prefetch_stages": 12},
}  # fmt: skip
STUBS = {
    "ptx/mbarrier.cuh": "inline void mbarrier_wait(u64*, u32) {} inline void mbarrier_arrive_expect_tx(u64*, u32) {}\n",
    "ptx/tma.cuh": "//",
    "ptx/relaxed.cuh": ALONE,
    "ptx/barrier.cuh": "inline u32 rank_here;\ninline u32 cluster_ctarank() { return rank_here; }\n",
    "ptx/stream.cuh": "inline void prefetch_global_l2(const void* from) { note(from, 128); }\n",
    "ptx/bulk_prefetch.cuh": """
struct Asked { long long from, bytes; };
inline Asked* logged;
inline int count;
inline void note(const void* from, long long bytes) { logged[count++] = {(long long)from, bytes}; }
inline void bulk_prefetch_l2(const void* from, u32 bytes, u64) { note(from, bytes); }
""",
}
ENTRY = """
extern "C" int prefetch(const WgmmaArguments* args, const StreamedRows* rows, int block, int blocks, int rank,
                        Asked* to) {
    logged = to, count = 0, rank_here = rank;
    blockIdx.x = block, gridDim.x = blocks;
    for (threadIdx.x = 0; threadIdx.x < Config::kThreads; ++threadIdx.x) RowPrefetch<Config>{*args, *rows}.run();
    return count;
}
"""
ASKED = np.dtype([("from_", np.int64), ("bytes", np.int64)])


def library_of(problem: Gemm, config: Config, folder: Path) -> ctypes.CDLL:
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(problem, config))
    return compiled(flatten("sm90_wgmma/prefetch.cuh", STUBS) + config_struct(source) + ENTRY, folder, "-fpermissive")


def asked_for(library: ctypes.CDLL, problem: Gemm, config: Config, row_bytes: int) -> np.ndarray:
    """How often all blocks together ask for each byte of the weights: (rows of all matrices, bytes of a row)."""
    derived, number = FAMILY.derive(problem, config), config.number
    rows, pitch_bytes = max(problem.m, problem.n), 2 * problem.k
    is_a = (problem.m > problem.n) != (number("swap_ab") == 1)
    tiles = derived["tiles_m"] * derived["tiles_n"] * problem.batch * number("split_k")
    given = launcher.WgmmaArguments(
        grid=TileGrid.of(config, derived, tiles, number("split_k") * number("cluster_k")),
        shared=launcher.SharedTiles.none(),
    )
    streamed = launcher.StreamedRows(0, pitch_bytes, rows * pitch_bytes, rows, row_bytes, is_a)
    asked = np.zeros((problem.batch * rows, pitch_bytes), dtype=np.int64)
    blocks = tiles * derived["cluster_size"]
    for block in range(blocks):
        found, rank = np.zeros(100_000, ASKED), block % derived["cluster_size"]
        to = ctypes.c_void_p(found.ctypes.data)
        for one in found[: library.prefetch(ctypes.byref(given), ctypes.byref(streamed), block, blocks, rank, to)]:
            row, begin = divmod(int(one["from_"]), pitch_bytes)
            # A line may reach past the row.
            assert one["bytes"] == 128 or (one["bytes"] % 16 == 0 and begin + one["bytes"] <= row_bytes)
            asked[row, begin : begin + int(one["bytes"])] += 1
    return asked


def wanted_of(problem: Gemm, config: Config) -> np.ndarray:
    """The same of any row: the first stages of each slice, once for each tile across the few rows."""
    derived, number = FAMILY.derive(problem, config), config.number
    slices, stage_bytes = number("split_k") * number("cluster_k"), 2 * number("tile_k")
    each, longer = divmod(derived["k_iterations"], slices)
    wanted, begin = np.zeros(2 * problem.k, dtype=np.int64), 0
    for stages in [each + (place < longer) for place in range(slices)]:
        wanted[begin : begin + min(number("prefetch_stages"), stages) * stage_bytes] += 1
        begin += stages * stage_bytes
    weights_are_a = (problem.m > problem.n) != (number("swap_ab") == 1)
    return wanted * derived["tiles_n" if weights_are_a else "tiles_m"]


@pytest.mark.parametrize("problem", [FEW_ROWS, FEW_COLUMNS], ids=["few rows", "few columns"])
@pytest.mark.parametrize("name", KNOBS)
def test_blocks_ask_for_the_first_stages_of_their_tiles_once(name: str, problem: Gemm, tmp_path: Path) -> None:
    knobs = {"prefetch_stages": 4} | KNOBS[name]
    if problem is FEW_COLUMNS:
        knobs |= {"swap_ab": 1 - int(str(knobs.get("swap_ab", 0))), "epilogue": "direct"}
    config = FAMILY.config(knobs)
    assert explain(FAMILY, problem, config).broken == ()
    library = library_of(problem, config, tmp_path)
    for row_bytes in (2 * problem.k, 2 * problem.k - 8):
        asked, whole = asked_for(library, problem, config, row_bytes), row_bytes // 16 * 16
        assert (asked[:, :whole] == wanted_of(problem, config)[:whole]).all()
