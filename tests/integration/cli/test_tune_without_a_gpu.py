"""`gemmtune tune` on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Shell

#: Not among the first set of recordings; in three others.
SHAPE = "16384x4096x4096"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr("tuner.cli.tune.driver_present", lambda: False)
    return Shell(tmp_path)


def test_it_replays_the_recording_that_answers(shell: Shell) -> None:
    answered = shell("best", SHAPE, "--json").json
    tuned = shell("tune", SHAPE, "--json").json
    assert answered["source"] == "recorded"
    assert (tuned["config"], tuned["median_us"]) == (answered["config"], answered["time_us"])


def test_a_word_that_names_a_recording_means_that_one(shell: Shell) -> None:
    assert "other sets do" in shell("tune", SHAPE, "--device", "recorded:h200").err


def test_what_no_recording_holds_is_told(shell: Shell) -> None:
    assert "the recording holds nothing of bf16 nt 640x640x640" in shell("tune", "640x640x640").err
