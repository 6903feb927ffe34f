"""What an answer chooses from a portfolio, beside what the model knows nothing of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from space.devices import profile_named
from space.family import family_named
from space.kinds.gemm import Gemm
from tuner.prediction.files import model_for
from tuner.prediction.portfolio import first_choice

FAMILY, H200 = family_named("sm90_wgmma"), profile_named("NVIDIA H200")


@pytest.mark.parametrize(("shape", "count"), [("64x8192x3584", 6), ("64x8192x512", 0), ("4096x4096x4096", 0)])
def test_of_a_knob_that_the_model_was_not_taught_the_estimate_chooses_the_value(
    shape: str, count: int, tmp_path: Path
) -> None:
    model = model_for(H200.name, tmp_path).model
    assert model is not None
    assert "knob.prefetch_stages" not in model.facts.features
    # It breaks a rule that has nothing to do with what is prefetched.
    plain = FAMILY.config({"tile_n": 64, "tile_k": 128, "cache_hint": "stream_a"})
    facts = model.facts.model_copy(update={"portfolio": (plain.knobs_text,)})
    found = first_choice(dataclasses.replace(model, facts=facts, beside=()), Gemm.parse(shape), H200)
    assert found is not None
    assert found.config == plain.changed({"prefetch_stages": count})
    assert found.time_us == found.prediction.time_us.min()
