"""gemv on a real GPU: random legal configs and extreme knob values give right results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.compile_space import legal_config
from benchmarks.launch_space import draw
from space.explain import is_legal
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.gpu.verified import unverified
from tuner.studying.candidates import candidates_for
from tuner.studying.open_worker import driver_present
from workers.cuda.worker import CudaWorker
from workers.measurement import Outcome

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

FAMILY = family_named("gemv")
PROBLEMS, CONFIGS_PER_PROBLEM = 40, 8
#: One knob at a time away from the defaults, with the knobs that depend on it.
CORNERS = [
    {}, {"load_bytes": 8}, {"load_bytes": 2}, {"warps": 1}, {"warps": 16, "unroll": 1}, {"split_warps": 8},
    {"lanes": 4}, {"lanes": 16, "split_warps": 2}, {"columns": 1}, {"columns": 4}, {"unroll": 16, "columns": 1},
    {"buffers": 2}, {"a_path": "cache"}, {"split_k": 8}, {"split_k": 32, "split_warps": 4}, {"persistent": 1},
    {"persistent": 1, "split_k": 2}, {"prefetch_bytes": 0}, {"cache_hint": "evict_first"}, {"pdl": 1},
    {"pdl": 1, "prefetch_steps": 4}, {"blocks_per_sm": 8, "warps": 4, "unroll": 2},
]  # fmt: skip
SHAPES = ["1x4096x4096", "2x1001x1000", "3x253x514", "4x65x16384", "1x1x2", "1x128256x512"]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaWorker]:
    with CudaWorker(0, tmp_path_factory.mktemp("cache"), deadline_seconds=10.0) as opened:
        yield opened


@pytest.mark.parametrize("layout", ["nt", "tt"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_corner_of_the_knobs_is_right(worker: CudaWorker, shape: str, layout: str) -> None:
    problem = Gemm.parse(shape, "bf16", layout)
    wanted = [FAMILY.config({"rows": problem.m} | knobs) for knobs in CORNERS]
    configs = [config for config in wanted if is_legal(FAMILY, problem, config)]
    measured = list(worker.begin(problem).screen(configs))
    assert unverified(measured) == {}
    assert len(measured) == len(configs) > 0


@pytest.mark.parametrize("number", range(PROBLEMS))
def test_random_legal_configs_are_right(worker: CudaWorker, number: int) -> None:
    rng = np.random.default_rng(number)
    problem = draw(FAMILY, rng, number)
    configs = list(dict.fromkeys(legal_config(FAMILY, problem, rng) for _ in range(CONFIGS_PER_PROBLEM)))
    measured = list(worker.begin(problem).screen(configs))
    assert unverified(measured) == {}
    assert len(measured) == len(configs)


def test_both_families_run_in_one_round_and_its_digest_is_of_both(worker: CudaWorker) -> None:
    problem = Gemm.parse("1x4096x4096")
    round_ = worker.begin(problem)
    first = {config.family: config for config in reversed(candidates_for(problem, worker))}
    assert first.keys() == {"sm90_wgmma", "gemv"}
    measured = list(round_.screen(list(first.values())))
    assert {one.outcome for one in measured} == {Outcome.CORRECT}
    finals = round_.finals(list(first.values()), 5)
    assert {one.config.family for one in finals} >= set(first)
    alone = worker.begin(Gemm.parse("64x64x64"))
    assert alone.provenance.kernel_source_digest != round_.provenance.kernel_source_digest
