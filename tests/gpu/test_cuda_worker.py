"""The GPU worker on a real GPU: right results at edges, and robust against kernels that are wrong, hang or crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.faults import FAULTS, NO_POLLS, Fault, FaultyBuilder, run
from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.explain import is_legal
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import rank
from tests.broken_configs import SHARED
from tests.gpu.verified import VERIFIED, unverified
from tuner.studying.candidates import spread
from tuner.studying.open_worker import device_here, driver_present
from workers.build import BuildFailure, compile_source
from workers.builder import source_of
from workers.cuda.bench import UNLISTED
from workers.cuda.worker import CudaWorker
from workers.measurement import Measurement, Outcome, Policy

H200 = profile_named("NVIDIA H200")

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
    *({"split_k": splits, "epilogue": "direct"} | knobs for splits, knobs in
      ((2, {}), (3, {"tile_n": 72}), (8, {"tile_n": 176}), (4, {"cluster_m": 2}), (4, {"tile_m": 256, "stages": 2}),
       (6, {"swap_ab": 1, "tile_n": 24}), (16, {"tile_n": 8}),
       (2, {"tile_m": 64, "schedule": "pingpong"}), (3, {"tile_m": 192, "consumer_warpgroups": 3, "stages": 3}))),
    *({"cluster_k": blocks, "epilogue": "direct"} | knobs for blocks, knobs in
      ((2, {}), (4, {"tile_n": 72}), (8, {"tile_n": 176, "stages": 2}), (2, {"tile_m": 256, "stages": 2}),
       (4, {"swap_ab": 1, "tile_n": 24}), (8, {"tile_m": 64, "consumer_warpgroups": 1, "tile_n": 8}),
       (4, {"tile_m": 64, "consumer_warpgroups": 1, "tile_n": 32, "pdl": 1}),
       (2, {"tile_m": 192, "consumer_warpgroups": 3, "tile_n": 96, "stages": 3}),
       (2, {"schedule": "multistage", "tile_n": 64, "producer_registers": 0}))),
    *(SHARED | knobs for knobs in
      ({}, {"tile_n": 72, "tile_m": 64}, {"tile_n": 64, "swap_ab": 1}, {"cluster_m": 2, "tile_n": 144},
       {"cluster_n": 2}, {"tile_n": 192, "stages": 3}, {"tile_m": 64, "tile_n": 64, "stages": 8, "pdl": 1})),
    *({"prefetch_stages": 4, "pdl": 1} | knobs for knobs in
      ({}, {"cluster_m": 2}, {"cluster_k": 2, "epilogue": "direct"}, {"swap_ab": 1, "tile_n": 24})),
]  # fmt: skip
SHAPES = ["512x512x512", "1000x1000x1000", "333x4104x2056", "1x8x8", "129x257x72", "64x1001x64", "17x1008x2056",
          "4095x4097x512"]  # fmt: skip


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaWorker]:
    with CudaWorker(0, tmp_path_factory.mktemp("cache"), deadline_seconds=10.0) as opened:
        yield opened


def measure(worker: CudaWorker, problem: Gemm, configs: list[Config]) -> list[Measurement]:
    return list(worker.begin(problem).screen(configs))


def test_the_device_of_commands_is_the_one_that_a_worker_has(worker: CudaWorker) -> None:
    assert device_here() == worker.facts.name


@pytest.mark.parametrize("shape", SHAPES)
def test_every_corner_of_the_knobs_is_right_on_edges_that_do_not_divide(worker: CudaWorker, shape: str) -> None:
    problem = Gemm.parse(shape)
    configs = [config for knobs in CORNERS if is_legal(FAMILY, problem, config := FAMILY.config(knobs))]
    measured = measure(worker, problem, configs)
    assert unverified(measured) == {}
    assert len(measured) == len(configs)


def test_two_hundred_ranked_candidates_are_right(worker: CudaWorker) -> None:
    problem = Gemm.parse("1111x2008x1024")
    configs = spread(rank(enumerate_space(FAMILY, problem), H200).configs(), 200)
    assert unverified(measure(worker, problem, configs)) == {}


@pytest.mark.parametrize("epilogue", ["scaled", "scaled_rowwise+bias"])
def test_candidates_that_read_scales_on_the_device_are_right(worker: CudaWorker, epilogue: str) -> None:
    for shape, dtype in (("1000x1040x528", "fp8_e4m3"), ("17x200x1024", "fp8_e4m3_promoted")):
        problem = Gemm.parse(shape, dtype, epilogue=epilogue)
        configs = spread(rank(enumerate_space(FAMILY, problem), H200).configs(), 60)
        measured = measure(worker, problem, configs)
        assert unverified(measured) == {}


LIBRARY_PROBLEMS = [
    *(Gemm.of(1024, 768, 512, dtype, "nt") for dtype in ("bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "int8")),
    *(Gemm.of(1024, 768, 512, dtype, layout) for dtype in ("bf16", "fp16", "tf32") for layout in ("nn", "tn", "tt")),
    Gemm.of(1024, 768, 512, "fp8_e4m3_promoted"),
    Gemm.of(256, 264, 136, "bf16", "nt", batch=5),
    Gemm.of(333, 257, 588, "bf16"),
    Gemm.of(1024, 768, 512, "bf16", epilogue="alpha+beta+bias+gelu"),
    Gemm.of(1024, 768, 512, "fp16", epilogue="bias+relu"),
    *(Gemm.of(1024, 768, 512, "fp8_e4m3", epilogue=epilogue) for epilogue in ("scaled", "scaled_rowwise+bias")),
]


#: cuBLASLt's fastest kernels for it on an H200 are none that its heuristic lists.
ONE_WAVE = Gemm.of(256, 3072, 4096)


@pytest.mark.parametrize("problem", LIBRARY_PROBLEMS, ids=lambda problem: problem.key)
def test_the_librarys_candidates_are_right_and_named(worker: CudaWorker, problem: Gemm) -> None:
    round_ = worker.begin(problem)
    first, *others = round_.baselines
    # Attributes rebuild every algorithm, so that none is named by its rank.
    assert all(config.number("algorithm") >= 0 for config in (first, *others))
    by_rank = family_named("cublaslt").config({"rank": 0})
    measured = {m.config: m for m in round_.screen([first, *others, by_rank])}
    for config in (first, by_rank):
        assert measured[config].outcome in VERIFIED, measured[config].detail
        named = measured[config].note
        assert measured[config].outcome is Outcome.UNSTABLE or ("tile" in named and "rank 0" in named)
    assert not [m for m in measured.values() if m.outcome in (Outcome.TIMEOUT, Outcome.WRONG_RESULT)]


@pytest.mark.parametrize("problem", [*LIBRARY_PROBLEMS, ONE_WAVE], ids=lambda problem: problem.key)
def test_kernels_that_the_library_does_not_list_are_right(worker: CudaWorker, problem: Gemm) -> None:
    round_ = worker.begin(problem)
    assert not {*round_.unlisted} & {*round_.baselines}
    measured = list(round_.screen(round_.unlisted))
    assert not [m.detail for m in measured if m.outcome not in VERIFIED]
    assert all("not in the heuristic's list" in m.note for m in measured if m.outcome is Outcome.CORRECT)
    assert len(measured) == UNLISTED or problem is not ONE_WAVE


def test_finals_have_every_policy_and_the_library_behind_our_own(worker: CudaWorker) -> None:
    problem = Gemm.parse("1024x1024x1024")
    round_ = worker.begin(problem)
    finals = round_.finals([FAMILY.config({}), FAMILY.config({"tile_n": 64})], 10)
    assert {m.policy for m in finals} == {Policy.SUSTAINED, Policy.BURST, Policy.CHAIN, Policy.ROUNDS}
    bursts = [m for m in finals if m.policy is Policy.BURST]
    assert [m.config.family for m in bursts][:3] == ["sm90_wgmma", "sm90_wgmma", "cublaslt"]
    rounds = [m for m in finals if m.policy is Policy.ROUNDS]
    assert {len(m.samples_us) for m in rounds} == {len(rounds[0].samples_us)}
    assert len(rounds[0].samples_us) >= 6
    assert all(m.clocks and m.clocks.sm_mhz > 0 and m.verification for m in finals)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_costs_one_candidate(worker: CudaWorker, fault: Fault) -> None:
    (found,) = run(worker, worker.cache_dir, (replace(fault, times=1),))
    assert found.broken.outcome in fault.outcomes, found.broken.detail
    assert fault.said in found.broken.detail or not fault.certain
    assert found.after.outcome in VERIFIED, found.after.detail


def test_ptxas_is_heard_at_every_compile() -> None:
    """NVRTC may answer from a cache of its own, beside a driver; what ptxas said the first time must not be lost."""
    (fault,) = (each for each in FAULTS if each.name == "missing wait for the last products")
    source = fault.plant(source_of(fault.problem, fault.config, "sm_90a"))
    for _ in range(2):
        build = compile_source(source, "sm_90a", None)
        assert isinstance(build, BuildFailure)
        assert "C7517" in build.reason


@pytest.mark.parametrize("splits", [2, 8])
def test_slices_that_give_up_polling_leave_their_share_to_the_last(worker: CudaWorker, splits: int) -> None:
    problem = Gemm.parse("500x1000x2048")
    config = FAMILY.config({"split_k": splits, "epilogue": "direct", "tile_n": 96})
    assert is_legal(FAMILY, problem, config)
    patient = worker.builder
    worker.builder = FaultyBuilder(worker.cache_dir, NO_POLLS)
    try:
        (measured,) = measure(worker, problem, [config])
    finally:
        worker.builder.close()
        worker.builder = patient
    assert measured.outcome in VERIFIED, measured.detail
