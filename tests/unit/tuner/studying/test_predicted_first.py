"""What would be answered without a measurement is measured first, whatever the worth rules say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from space.devices import profile_named
from space.kinds.gemm import Gemm
from tuner.answering.answers import answer
from tuner.prediction.files import model_for
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import Guidance, order_for
from workers.measurement import DeviceFacts

H200 = "NVIDIA H200"
MODEL = model_for(H200, Path("/nowhere")).model
NOTHING = SimpleNamespace(best=lambda *_: None, neighbours=lambda *_: (), wrong=lambda *_: ())


@pytest.mark.parametrize("shape", ["4096x4096x4096", "16x2112x7168", "300x7168x2048", "8192x1024x640"])
def test_the_predicted_answer_is_among_the_first_tried(shape: str) -> None:
    problem, profile = Gemm.parse(shape), profile_named(H200)
    facts = DeviceFacts(H200, "sm_90a", "cuda", "GPU-1", "580", profile.sm_count, profile.l2_bytes)
    worker: Any = SimpleNamespace(facts=facts, measurable=lambda problem: None)
    answered = answer(NOTHING, problem, H200, model=MODEL).config
    assert answered is not None
    assert answered["pdl"] == 0
    candidates = candidates_for(problem, worker, model=MODEL)
    assert answered in candidates
    assert answered in order_for(Guidance(MODEL), problem, candidates, H200).take(4)


@pytest.mark.parametrize("shape", ["1x4096x4096", "4x8192x1024", "4096x4096x4096"])
def test_without_a_model_so_is_the_answer_of_the_grounded_family(shape: str) -> None:
    problem, profile = Gemm.parse(shape), profile_named("H100 PCIe")
    facts = DeviceFacts(profile.name, "sm_90a", "cuda", "GPU-1", "580", profile.sm_count, profile.l2_bytes)
    worker: Any = SimpleNamespace(facts=facts, measurable=lambda problem: None)
    answered = answer(NOTHING, problem, profile.name).config
    assert answered in order_for(Guidance(), problem, candidates_for(problem, worker), profile.name).take(4)
