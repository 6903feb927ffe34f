"""What a model learns from: the store, recordings, and the command that brings them together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from space.problem import Problem
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, record_problem, study_key
from tuner.model.examples import LEAST_CANDIDATES, from_recordings, from_store, settled
from tuner.store.store import Store
from workers.measurement import Outcome

CONFIGS = [FAMILY.config({"tile_n": 8 * place}) for place in range(1, 21)]


def test_each_study_of_a_gpu_is_a_group_and_replays_are_passed_over(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        for _ in range(2):
            study = store.begin_study(study_key(), fresh=True)
            store.record_many(study.id, [measured(config, 10.0 + n) for n, config in enumerate(CONFIGS)], PROVENANCE)
        other = store.begin_study(study_key(Problem.parse("512x512x512")))
        store.record_many(other.id, [measured(CONFIGS[0])], PROVENANCE)
        groups = from_store(store, DEVICE, FAMILY)
        assert [len(group.configs) for group in groups] == [20, 20]
        assert {group.problem for group in groups} == {PROBLEM}
        assert groups[0].digest == groups[1].digest
        assert from_store(store, "NVIDIA Imaginary", FAMILY) == []


def test_recordings_give_their_correct_candidates(tmp_path: Path) -> None:
    record_problem(tmp_path, CONFIGS)
    (group,) = from_recordings(tmp_path, FAMILY)
    assert len(group.configs) == sum(place % 7 != 6 for place in range(20)) >= LEAST_CANDIDATES
    assert group.time_us[0] == pytest.approx(10.0)
    assert from_recordings(tmp_path / "none", FAMILY) == []


def test_finals_settle_who_was_merely_lucky_on_the_screens_scale() -> None:
    screened = [measured(config, 100.0 + place) for place, config in enumerate(CONFIGS)]
    finals = [measured(config, us, stage="final") for config, us in zip(CONFIGS, (130.0, 110.0, 111.0), strict=False)]
    failed = measured(FAMILY.config({"tile_n": 248}), outcome=Outcome.TIMEOUT)
    times = settled([*screened, *finals, failed])
    assert len(times) == 20
    scale = sorted((100 / 130, 101 / 110, 102 / 111))[1]
    assert times[CONFIGS[0]] == pytest.approx(130 * scale)
    assert times[CONFIGS[3]] == pytest.approx(103.0)
    assert min(times, key=lambda config: times[config]) == CONFIGS[1]


def run(arguments: list[str], folder: Path, expect: int = 0) -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")} | {
        "GEMMTUNE_RECORDED_DIR": str(folder / "recorded"), "GEMMTUNE_MODEL_DIR": str(folder / "models"),
        "GEMMTUNE_DB": str(folder / "s.db"),
    }  # fmt: skip
    command = [sys.executable, "-m", "tuner.cli", "model", *arguments, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_one_command_trains_the_model_that_is_used_from_then_on(tmp_path: Path) -> None:
    assert "0 problems" in str(run(["train"], tmp_path, expect=3)["error"])
    for shape in ("256x256x256", "512x256x512", "512x512x1024"):
        record_problem(tmp_path / "recorded" / "h200", CONFIGS, Problem.parse(shape))
    trained = run(["train"], tmp_path)
    assert trained["candidates"] == 3 * 18
    assert Path(str(trained["file"])).parent == tmp_path / "models"
    shown = run(["show"], tmp_path)
    assert (shown["file"], shown["data"]) == (trained["file"], trained["data"])
    assert run(["show", "--file", str(tmp_path / "none.npz")], tmp_path, expect=3)["error"]
    assert "no model was trained" in str(run(["show", "--device", "NVIDIA Imaginary"], tmp_path)["why"])
