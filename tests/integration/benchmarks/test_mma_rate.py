"""The bare loop of mma.sync compiles for every target, and the benchmark counts its operations as the kernel does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mma_ceiling import FRAGMENT_WORDS, STEP_BYTES, THREADS, drawn, ranked_for, rate_source, share_of_first
from space.devices import profile_named
from space.kinds.gemm import Gemm
from workers.build import Build, compile_source


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [("sm_80", "bf16"), ("sm_86", "int8"), ("sm_89", "fp8_e4m3"), ("sm_90a", "tf32"), ("sm_120a", "fp16"),
     ("sm_86", "fp16_acc16"), ("sm_89", "fp8_e5m2_acc16")],
)
def test_it_compiles_without_spills_and_loads_nothing_in_its_loop(arch: str, dtype: str) -> None:
    built = compile_source(rate_source(Gemm.of(64, 64, 64, dtype)), arch, None)
    assert isinstance(built, Build), built
    sums = 64 if dtype.endswith("acc16") else 128
    assert sums + 32 <= built.registers <= 255


def test_the_benchmark_counts_what_the_kernel_does() -> None:
    source = rate_source(Gemm.of(64, 64, 64))
    assert f"constexpr int kRateThreads = {THREADS};" in source
    assert "constexpr int kBlocksM = 4, kBlocksN = 8;" in source
    assert FRAGMENT_WORDS == 4 * 4 + 2 * 8
    assert STEP_BYTES // 2 == 2 * (4 * 16) * (8 * 8) * 16


def test_candidates_are_drawn_in_the_order_of_the_estimate_and_judged_by_their_times() -> None:
    ranked = ranked_for(Gemm.parse("512x512x512"), profile_named("NVIDIA H200"))
    configs = drawn(ranked, 40, np.random.default_rng(1))
    assert len(set(configs)) == 40
    order = [place for place in range(len(ranked)) if ranked.config(place) in set(configs[:3])]
    assert [ranked.config(place) for place in order] == configs[:3]
    times = {config: 10.0 + place for place, config in enumerate(reversed(configs))}
    assert share_of_first(configs, times) == pytest.approx(10 / (10 + 40 - 16))
    assert share_of_first(configs, {config: 1.0 for config in configs[5:]}) == 1.0
