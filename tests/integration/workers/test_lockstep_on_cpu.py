"""The meetings' own text, run by one CPU thread a cluster: nobody runs ahead, nobody waits for ever, nothing is left.

Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.on_cpu import compiled, needs_compiler
from workers.cuda.families import sm90_wgmma as launcher
from workers.cuda.families.arguments import Divider, TileGrid
from workers.kernels.flatten import flatten

pytestmark = needs_compiler

ATOMICS = """
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>
inline std::atomic<int> looks;
inline u32 atom_add_relaxed(u32* at, u32 addend) { return std::atomic_ref<u32>(*at).fetch_add(addend); }
inline void red_add_relaxed(u32* at, u32 addend) { std::atomic_ref<u32>(*at).fetch_add(addend); }
inline void st_relaxed(u32* at, u32 value) { std::atomic_ref<u32>(*at).store(value); }
inline int patience_us;
inline u32 ld_relaxed(u32* at) {
    ++looks;
    std::this_thread::sleep_for(std::chrono::microseconds(patience_us));
    return std::atomic_ref<u32>(*at).load();
}
"""
SHAPE = "template <class Config> struct Shape { static constexpr int kInStep = 1, kClusterSize = 1; };"
RUN = """
struct Config { static constexpr int kSplits = 0, kStreamK = 0, kClusterK = 1; };
// Runs all clusters but those that are missing, of launches that overlap; returns the most meetings that one has ever
// been ahead of another.
extern "C" int run(const WgmmaArguments* args, int clusters, int missing, int launches, int patience) {
    patience_us = patience;
    looks = 0;
    const int running = launches * (clusters - missing);
    std::vector<std::atomic<int>> been(running);
    std::atomic<int> ahead = 0;
    std::vector<std::thread> threads;
    for (int cluster = 0; cluster < running; ++cluster) threads.emplace_back([&, cluster] {
        Lockstep lockstep;
        TileWalk<Config> walk(*args, cluster % (clusters - missing), clusters, 0);
        Tile tile;
        while (walk.next(tile)) {
            for (; tile.k < tile.k_end; ++tile.k) {
                lockstep.meet(args->grid, tile.k, walk.at, clusters);
                const int meetings = lockstep.meetings & ~Lockstep::kWaitsNoMore;
                been[cluster] = meetings;
                for (auto& other : been) ahead = std::max(ahead.load(), meetings - other.load());
            }
        }
    });
    for (auto& thread : threads) thread.join();
    return ahead;
}
extern "C" unsigned left() { return lockstep_arrivals | lockstep_present; }
extern "C" void leave(unsigned arrivals) { lockstep_arrivals = arrivals; }
extern "C" int looked() { return looks; }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    stubs = {"ptx/relaxed.cuh": ATOMICS, "sm90_wgmma/shape.cuh": SHAPE}
    return compiled(flatten("sm90_wgmma/schedule.cuh", stubs) + RUN, tmp_path_factory.mktemp("lockstep"))


def run(
    kernel: ctypes.CDLL, tiles: int, clusters: int, stages: int, *, missing: int = 0, launches: int = 1,
    patience_us: int = 0,
) -> int:  # fmt: skip
    one, all_tiles = Divider.of(1), Divider.of(tiles)
    grid = TileGrid(tiles, stages, 0, tiles - 1, one, all_tiles, one, one, one)
    given = launcher.WgmmaArguments(grid=grid, shared=launcher.SharedTiles.none())
    return int(kernel.run(ctypes.byref(given), clusters, missing, launches, patience_us))


def test_no_cluster_runs_ahead(kernel: ctypes.CDLL) -> None:
    for _ in range(2):
        # Two waves of three meetings. Another cluster may have arrived at a meeting and not yet seen its end, and the
        # last one waits for nobody.
        assert run(kernel, 10, 4, 100, patience_us=250_000) <= 2
        assert kernel.looked() >= 5 * 4
        assert kernel.left() == 0


def test_a_cluster_waits_in_vain_once(kernel: ctypes.CDLL) -> None:
    run(kernel, 20, 2, 100, missing=1)
    assert kernel.looked() == 24
    assert kernel.left() == 0


@pytest.mark.parametrize(("tiles", "stages"), [(40, 47), (3, 100)], ids=["short tiles", "no full wave"])
def test_no_meeting_pays(kernel: ctypes.CDLL, tiles: int, stages: int) -> None:
    run(kernel, tiles, 4, stages)
    assert kernel.looked() == 0
    assert kernel.left() == 0


@settings(max_examples=60, deadline=None)
@given(tiles=st.integers(1, 30), clusters=st.integers(1, 5), stages=st.integers(1, 200), launches=st.integers(1, 3))
def test_arrivals_are_cleared_whatever_the_launches(
    kernel: ctypes.CDLL, tiles: int, clusters: int, stages: int, launches: int
) -> None:
    run(kernel, tiles, clusters, stages, launches=launches)
    assert kernel.left() == 0


@pytest.mark.parametrize(("arrivals", "looks"), [(1, 1 + 24), (7, 7 + 24), (1_000_000, 29)])
def test_a_number_that_was_left_holds_nobody_up(kernel: ctypes.CDLL, arrivals: int, looks: int) -> None:
    kernel.leave(arrivals)
    # Thirty meetings, of which the last is not waited for; the other cluster never comes.
    run(kernel, 20, 2, 100, missing=1)
    assert kernel.looked() == looks
    assert kernel.left() == 0
