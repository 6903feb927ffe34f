"""The GPU worker on a real GPU: right on edges, and unimpressed by kernels that lie, hang or crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from space.arch import H200
from space.config import Config
from space.enumerate import enumerate_space
from space.explain import is_legal
from space.family import family_named
from space.problem import Problem
from space.rank import rank
from tuner.devices import driver_present
from tuner.sampler import spread
from workers.builder import Builder
from workers.cuda.worker import CudaWorker
from workers.measurement import Measurement, Outcome, Policy

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

FAMILY = family_named("sm90_wgmma")
#: One knob at a time away from the defaults, so that every branch of the kernel runs.
CORNERS = [
    {}, {"epilogue": "direct"}, {"swizzle_a": 64}, {"swizzle_b": 32}, {"tile_k": 32, "swizzle_a": 64, "swizzle_b": 32},
    {"tile_k": 128}, {"tile_n": 8}, {"tile_n": 200, "epilogue": "tma"}, {"tile_n": 72, "epilogue": "direct"},
    {"tile_m": 64, "consumer_warpgroups": 1}, {"tile_m": 192, "consumer_warpgroups": 3, "stages": 3},
    {"tile_m": 256, "stages": 2}, {"tile_m": 128, "consumer_warpgroups": 1}, {"cluster_m": 2}, {"cluster_n": 2},
    {"cluster_m": 2, "cluster_n": 2}, {"cluster_m": 4}, {"cluster_n": 4}, {"cluster_m": 2, "cluster_n": 4},
    {"raster": "along_n", "raster_group": 1}, {"stages": 2}, {"tile_m": 64, "consumer_warpgroups": 1, "stages": 12},
]  # fmt: skip
SHAPES = ["512x512x512", "1000x1000x1000", "333x4104x2056", "1x8x8", "129x257x72", "64x1001x64", "4095x4097x512"]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaWorker]:
    with CudaWorker(0, tmp_path_factory.mktemp("cache"), deadline_seconds=10.0) as opened:
        yield opened


def measure(worker: CudaWorker, problem: Problem, configs: list[Config]) -> list[Measurement]:
    return list(worker.begin(problem, Policy.COLD_GRAPH).screen(configs))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_corner_of_the_knobs_is_right_on_edges_that_do_not_divide(worker: CudaWorker, shape: str) -> None:
    problem = Problem.parse(shape)
    configs = [config for knobs in CORNERS if is_legal(FAMILY, problem, config := FAMILY.config(knobs))]
    measured = measure(worker, problem, configs)
    assert {m.config.key: (m.outcome, m.detail) for m in measured if m.outcome is not Outcome.CORRECT} == {}
    assert len(measured) == len(configs)


def test_two_hundred_ranked_candidates_are_right(worker: CudaWorker) -> None:
    problem = Problem.parse("1111x2008x1024")
    configs = spread(rank(enumerate_space(FAMILY, problem), H200).configs(), 200)
    assert {m.config.key: m.detail for m in measure(worker, problem, configs) if m.outcome is not Outcome.CORRECT} == {}


class Broken(Builder):
    """Compiles an edited kernel."""

    def __init__(self, cache_dir: Path, old: str, new: str) -> None:
        super().__init__(cache_dir)
        self._old, self._new = old, new

    def source_of(self, problem: Problem, config: Config) -> str:
        source = super().source_of(problem, config)
        assert self._old in source
        return source.replace(self._old, self._new)


#: Where the threads of a block take their roles.
ROLE = "const int warpgroup = threadIdx.x / kWarpgroupSize;"
FAULTS = [
    ("stale accumulator", "accumulate || k > from);", "true);", Outcome.WRONG_RESULT),
    ("dropped K slice", "multiply_stage(row, ring.stage, !first, d);",
     "if (k == tile.k + 1) { release(previous); previous = ring.stage; continue; }"
     " multiply_stage(row, ring.stage, !first, d);", Outcome.WRONG_RESULT),
    ("swizzle mismatch", "kMode = kSwizzle == 128 ? 1", "kMode = kSwizzle == 128 ? 2", Outcome.WRONG_RESULT),
    ("infinite loop", ROLE, ROLE + ' while (args.m) asm volatile("nanosleep.u32 100;");', Outcome.TIMEOUT),
    ("trap", ROLE, ROLE + ' if (args.m) asm volatile("trap;");', Outcome.LAUNCH),
    ("illegal address", ROLE, ROLE + " if (args.m) *(volatile int*)8 = 1;", Outcome.LAUNCH),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "old", "new", "outcome"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_costs_one_candidate(
    worker: CudaWorker, tmp_path: Path, fault: str, old: str, new: str, outcome: Outcome
) -> None:
    problem = Problem.parse("1000x1000x1000")
    sound, config = worker.builder, FAMILY.config({})
    round_ = worker.begin(problem, Policy.COLD_GRAPH)
    worker.builder = Broken(tmp_path, old, new)
    # The GPU process reads cubins from its own cache: give it the broken one there.
    worker.builder._cache_dir = sound._cache_dir
    try:
        broken = next(iter(round_.screen([config])))
    finally:
        worker.builder.close()
        worker.builder = sound
    assert broken.outcome is outcome, broken.detail
    assert broken.detail
    after = next(iter(round_.screen([config])))
    assert after.outcome is Outcome.CORRECT, after.detail
