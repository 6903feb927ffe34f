"""Real compiles with NVRTC, no GPU: legal configs build as promised, and illegal ones fail with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compile_space import samples, verdict
from space.elements import element_bytes
from space.enumerate import enumerate_space
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.broken_configs import SHARED
from workers.build import Build, BuildFailure, compile_source, kept_cubin
from workers.errors import CacheError
from workers.kernels.source import source_of_family

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("4096x4096x4096")


def source(**knobs: object) -> str:
    return source_of_family(FAMILY).render(FAMILY.compile_constants(PROBLEM, FAMILY.config(knobs)))


def test_a_random_sample_of_the_legal_space_compiles_without_spills_or_warnings() -> None:
    space = enumerate_space(FAMILY, PROBLEM, pruned=False)
    rows = np.random.default_rng(11).integers(len(space), size=12)
    configs = [FAMILY.config_at(space.columns, int(row)) for row in rows]
    sources = [source_of_family(FAMILY).render(FAMILY.compile_constants(PROBLEM, config)) for config in configs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda text: compile_source(text, "sm_90a", None), sources))
    failures = {config.key: build.reason for config, build in zip(configs, built, strict=True)
                if isinstance(build, BuildFailure)}  # fmt: skip
    assert failures == {}
    for config, build in zip(configs, built, strict=True):
        assert isinstance(build, Build)
        assert build.registers <= FAMILY.derive(PROBLEM, config)["entry_registers"]


@pytest.mark.parametrize(
    "knobs",
    [
        # Shares of as many column groups as there are blocks, of fewer, and uneven ones: the kernel holds the size.
        {"cluster_k": 2}, {"cluster_k": 4, "tile_n": 72}, {"cluster_k": 8, "tile_m": 64, "tile_n": 8},
        {"cluster_k": 8, "tile_m": 64, "tile_n": 24, "swap_ab": 1},
    ],
)  # fmt: skip
def test_sums_of_a_cluster_along_k_take_the_shared_memory_that_is_derived(knobs: dict[str, object]) -> None:
    single = {"consumer_warpgroups": 1, "producer_registers": 0} if knobs.get("tile_m") == 64 else {}
    config = FAMILY.config({"epilogue": "direct", "tile_n": 128, "stages": 3} | single | knobs)
    assert explain(FAMILY, PROBLEM, config).legal
    build = compile_source(source(**config.knobs), "sm_90a", None)
    assert isinstance(build, Build), build
    assert build.registers <= FAMILY.derive(PROBLEM, config)["entry_registers"]


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3", "int8", "tf32"])
@pytest.mark.parametrize("knobs", [{"tile_m": 256, "stages": 3}, {"schedule": "pingpong", "stages": 5}])
def test_tiles_of_208_columns_leave_enough_registers_for_direct_stores(dtype: str, knobs: dict[str, object]) -> None:
    assert_wide_compiles(dtype, {"epilogue": "direct"} | knobs)


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("swap_ab", [0, 1])
def test_tiles_of_208_columns_leave_enough_registers_for_halves(dtype: str, swap_ab: int) -> None:
    assert_wide_compiles(dtype, {"epilogue": "tma_half", "tile_m": 256, "stages": 3, "swap_ab": swap_ab})


def assert_wide_compiles(dtype: str, knobs: dict[str, object]) -> None:
    problem = Gemm.parse("4096x4096x4096", dtype)
    stage = {"tile_k": 128 // element_bytes(problem.dtype_a), "tile_n": 208, "producer_registers": 24}
    config = FAMILY.config(stage | knobs)
    assert explain(FAMILY, problem, config).broken == ()
    build = compile_source(source_of_family(FAMILY).render(FAMILY.compile_constants(problem, config)), "sm_90a", None)
    assert isinstance(build, Build), build.reason


def test_random_legal_configs_of_gemv_compile_within_their_registers() -> None:
    drawn = list(samples(family_named("gemv"), 8, np.random.default_rng(5)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda sample: verdict(*sample), drawn))
    assert {config.key: said for (_, config), said in zip(drawn, verdicts, strict=True) if said} == {}


@pytest.mark.parametrize(
    ("dtype", "knobs", "said"),
    [
        ("bf16", {"warps": 2, "split_warps": 4}, "the size of an array must be greater than zero"),
        ("tf32", {"load_bytes": 2}, "a load brings whole elements"),
        ("bf16", {"columns": 4, "unroll": 16}, "registers spilled to local memory"),
    ],
)
def test_what_the_rules_of_gemv_refuse_the_compiler_refuses(dtype: str, knobs: dict[str, object], said: str) -> None:
    gemv, problem = family_named("gemv"), Gemm.parse("1x64x8192", dtype)
    broken = [entry.rule for entry in explain(gemv, problem, gemv.config(knobs)).broken]
    assert len(broken) == 1
    text = source_of_family(gemv).render(gemv.compile_constants(problem, gemv.config(knobs)))
    made = compile_source(text, "sm_90a", None)
    assert isinstance(made, BuildFailure), f"{broken[0]} is stricter than the compiler"
    assert said in made.reason


#: What the kernel asserts of clusters along K and of shared tiles, and what ptxas does where registers are short.
ALONE, DIRECT = "a cluster along K has no other extent, and one tile", "a shared tile leaves by direct stores"
INJECTED = "wgmma.wait_group is injected"


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        # Each breaks one rule that the compiler sees too; `test_broken_configs.py` has more.
        ({"tile_m": 192, "consumer_warpgroups": 3, "tile_n": 256, "stages": 2, "epilogue": "direct"},
         "Insufficient registers"),
        ({"cluster_k": 2, "cluster_m": 2, "epilogue": "direct"}, ALONE),
        ({"cluster_k": 2, "split_k": 2, "epilogue": "direct"}, ALONE),
        ({"cluster_k": 2, "schedule": "pingpong", "tile_m": 64, "epilogue": "direct"}, ALONE),
        ({"cluster_k": 2, "stages": 3}, "shares leave by direct stores"),
        ({**SHARED, "split_k": 2}, "a tile's K is cut in only one way"),
        ({**SHARED, "schedule": "cooperative"}, DIRECT),
        ({**SHARED, "epilogue": "tma"}, DIRECT),
        ({"tile_m": 256, "tile_n": 208, "producer_registers": 24, "stages": 2}, "registers spilled to local memory"),
        ({**SHARED, "tile_n": 16}, INJECTED),
        ({**SHARED, "tile_n": 128, "tile_k": 32, "swizzle_a": 0, "swizzle_b": 32, "cluster_n": 2}, INJECTED),
    ],
)  # fmt: skip
def test_what_the_rules_refuse_the_compiler_refuses(knobs: dict[str, object], said: str) -> None:
    made = compile_source(source(**knobs), "sm_90a", None)
    assert isinstance(made, BuildFailure), "the rule is stricter than the compiler"
    assert said in made.reason


def test_wgmma_needs_the_suffix() -> None:
    failure = compile_source(source(), "sm_90", None)
    assert isinstance(failure, BuildFailure)
    assert "sm_90a" in failure.log or "not supported" in failure.log


def test_a_build_is_kept_and_found_again(tmp_path: Path) -> None:
    made, again = (compile_source(source(), "sm_90a", tmp_path) for _ in range(2))
    assert isinstance(made, Build)
    assert isinstance(again, Build)
    assert made.seconds > 0 == again.seconds
    assert (made.digest, made.cubin, made.registers) == (again.digest, again.cubin, again.registers)
    assert kept_cubin(tmp_path, made.digest) == made.cubin


@pytest.mark.parametrize("damaged", [lambda held: held[:100], lambda held: b"[" * 100_000])
def test_a_damaged_build_is_compiled_again(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    made = compile_source(source(), "sm_90a", tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(damaged(path.read_bytes()))
    again = compile_source(source(), "sm_90a", tmp_path)
    assert isinstance(made, Build)
    assert isinstance(again, Build)
    assert again.cubin == made.cubin
    assert again.seconds > 0


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CacheError, match="GEMMTUNE_CACHE_DIR"):
        compile_source(source(), "sm_90a", tmp_path / "file")


def test_an_unknown_build_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="not in"):
        kept_cubin(tmp_path, "0" * 64)
