"""mma_sync on a real GPU: random legal configs of every dtype and layout, and extreme knob values, give right results.

Any GPU from Ampere on runs it: its own arch is a target of the family, or one that it falls back to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.compile_space import legal_config
from benchmarks.launch_space import draw
from space.explain import is_legal
from space.family import family_named
from space.kinds.gemm import LAYOUTS, Gemm
from tests.gpu.verified import unverified
from tuner.studying.open_worker import driver_present
from workers.build import nvrtc_version
from workers.cuda.worker import CudaWorker
from workers.measurement import Outcome

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

FAMILY = family_named("mma_sync")
PROBLEMS, CONFIGS_PER_PROBLEM = 64, 8
#: The compiler whose spills the rules know. Others spill a few legal configs more, and their builds are refused: NVRTC
#: 13.0 at most two of a problem's eight.
RULES_NVRTC, MOST_SPILLED = "13.5", 2
#: One knob at a time away from the defaults, with the knobs that depend on it.
CORNERS = [
    {}, {"swap_ab": 1}, {"tile_m": 16, "warps_m": 1}, {"tile_m": 256, "warps_m": 4}, {"tile_n": 8, "warps_n": 1},
    {"tile_n": 256, "warps_n": 4}, {"tile_m": 96, "tile_n": 96}, {"tile_n": 48, "warps_n": 2}, {"warps_n": 8},
    {"tile_k": 64}, {"tile_k": 128, "stages": 2}, {"swizzle": 0}, {"stages": 2}, {"stages": 6}, {"blocks_per_sm": 2},
    {"split_k": 2}, {"split_k": 32}, {"split_k": 3, "swap_ab": 1}, {"persistent": 1}, {"persistent": 1, "split_k": 4},
    {"stream_k": 1}, {"stream_k": 1, "tile_m": 64, "tile_n": 64, "blocks_per_sm": 2}, {"stream_k": 1, "swap_ab": 1},
    {"raster": "along_n", "raster_group": 4}, {"raster_group": 1}, {"prefetch_bytes": 0}, {"prefetch_bytes": 256},
    {"copies": "tma"}, {"copies": "tma", "persistent": 1}, {"copies": "tma", "swap_ab": 1, "split_k": 3},
    {"copies": "tma", "persistent": 1, "tile_n": 256, "warps_n": 4, "tile_k": 128, "stages": 2},
    {"copies": "tma", "tile_m": 32, "tile_n": 64, "warps_m": 1, "swizzle": 0, "blocks_per_sm": 4, "stages": 8},
]  # fmt: skip
SHAPES = ["512x768x4096", "333x521x1001", "1x4096x4096", "1000x1000x1000", "17x96x8192", "1x1x2"]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaWorker]:
    with CudaWorker(0, tmp_path_factory.mktemp("cache"), deadline_seconds=10.0) as opened:
        assert opened.facts.arch in FAMILY.targets | FAMILY.fallbacks
        yield opened


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_corner_of_the_knobs_is_right(worker: CudaWorker, shape: str, layout: str, dtype: str) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    profile = worker.facts.profile
    configs = [config for config in map(FAMILY.config, CORNERS) if is_legal(FAMILY, problem, config, profile)]
    measured = list(worker.begin(problem).screen(configs))
    assert unverified(measured) == {}
    assert len(measured) == len(configs) > 0


@pytest.mark.parametrize("number", range(PROBLEMS))
def test_random_legal_configs_are_right(worker: CudaWorker, number: int) -> None:
    rng = np.random.default_rng(number)
    profile = worker.facts.profile
    problem = draw(FAMILY, rng, number, profile)
    configs = list(dict.fromkeys(legal_config(FAMILY, problem, rng, profile) for _ in range(CONFIGS_PER_PROBLEM)))
    measured = list(worker.begin(problem).screen(configs))
    assert len(measured) == len(configs)
    spilled = [one for one in measured if one.outcome is Outcome.COMPILE and "spilled" in one.detail]
    assert len(spilled) <= (0 if nvrtc_version() == RULES_NVRTC else MOST_SPILLED)
    assert unverified(one for one in measured if one not in spilled) == {}
