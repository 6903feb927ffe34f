"""The guidance of a search, and the sentence that names its model."""

from __future__ import annotations

from pathlib import Path

from space.devices import profile_named
from tuner.prediction.files import model_for
from tuner.studying.guidance import guidance_for

H200 = profile_named("NVIDIA H200")


def test_guidance_says_which_model_answers_or_why_none_does(tmp_path: Path) -> None:
    choice, shipped = model_for(H200.name, tmp_path), guidance_for(H200.name, tmp_path)
    assert (shipped.model, shipped.why) == (choice.model, choice.why)
    unknown = guidance_for("NVIDIA Imaginary", tmp_path)
    assert unknown.model is None
    assert "no model was trained on NVIDIA Imaginary" in unknown.why
