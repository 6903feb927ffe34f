"""What a recording measures: what would be answered, and of each family its first and some of every structure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from space.devices import profile_named
from space.kinds.gemm import Gemm
from space.structures import structure_of
from tuner.prediction.expectation import expected_of
from tuner.prediction.files import model_for
from tuner.prediction.portfolio import first_choice
from tuner.studying.recorder import wanted_of
from workers.measurement import DeviceFacts

H200 = "NVIDIA H200"
PROFILE = profile_named(H200)
FACTS = DeviceFacts(H200, "sm_90a", "cuda", "GPU-1", "580", PROFILE.sm_count, PROFILE.l2_bytes)
WORKER: Any = SimpleNamespace(facts=FACTS, measurable=lambda problem: None)
MODEL = model_for(H200, Path("/nowhere")).model


@pytest.mark.parametrize("shape", ["2048x2048x2048", "64x896x1312"])
def test_half_is_what_the_model_finds_fastest_and_half_is_spread(shape: str) -> None:
    problem = Gemm.parse(shape)
    wanted = wanted_of(problem, WORKER, 64, MODEL)
    assert len(wanted) == len(set(wanted)) == 64
    assert MODEL is not None
    chosen = first_choice(MODEL, problem, PROFILE)
    assert chosen is not None
    assert wanted[0] == chosen.config
    expected = expected_of(problem, wanted, H200, MODEL).log_us
    assert expected[1:33].max() <= np.median(expected[33:])
    first, spread = ({structure_of(config) for config in part} for part in (wanted[:33], wanted[33:]))
    assert len(first | spread) > 1.5 * len(first)


def test_families_that_compete_have_half_each() -> None:
    wanted = wanted_of(Gemm.parse("2x2048x2048"), WORKER, 64, MODEL)
    names = [config.family for config in wanted]
    assert min(names.count("gemv"), names.count("sm90_wgmma")) >= 31


def test_without_a_model_the_estimate_ranks() -> None:
    problem = Gemm.parse("2048x2048x2048")
    wanted = wanted_of(problem, WORKER, 32, None)
    estimates = expected_of(problem, wanted, H200).log_us
    assert estimates[:16].max() <= estimates[16:].min()
