"""Training data: the store, recordings, and the command that combines them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from gemmtune.command import main
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, record_problem, study_key
from tuner.evidence.store import Store
from tuner.prediction.examples import LEAST_CANDIDATES, from_recordings, from_store, settled
from tuner.prediction.train import with_portfolio
from workers.measurement import Measurement, Outcome

Said: TypeAlias = dict[str, object]

CONFIGS = [FAMILY.config({"tile_n": 8 * place}) for place in range(1, 21)]


def test_each_study_of_a_gpu_is_a_group_and_replays_are_passed_over(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        for _ in range(2):
            study = store.begin_study(study_key(), fresh=True)
            store.record_many(study.id, [measured(config, 10.0 + n) for n, config in enumerate(CONFIGS)], PROVENANCE)
        other = store.begin_study(study_key(Gemm.parse("512x512x512")))
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


def built(measurement: Measurement) -> Measurement:
    return replace(measurement, build_digest="b" * 64)


def test_nothing_is_learned_of_a_build_that_another_study_found_wrong(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        screened = [built(measured(config, 10.0 + place)) for place, config in enumerate(CONFIGS)]
        study = store.begin_study(study_key())
        store.record_many(study.id, screened, PROVENANCE)
        later = store.begin_study(study_key(), fresh=True)
        wrong = built(measured(CONFIGS[0], outcome=Outcome.WRONG_RESULT))
        store.record_many(later.id, [wrong, *screened[1:3]], PROVENANCE)
        (group,) = from_store(store, DEVICE, FAMILY)
        assert group.configs == tuple(CONFIGS[1:])
        told = [each.measurement.outcome for each in store.every(DEVICE) if each.measurement.config == CONFIGS[0]]
        assert told == [Outcome.WRONG_RESULT]


def test_nothing_is_learned_of_what_was_wrong_in_the_finals_of_its_run() -> None:
    screened = [measured(config, 100.0 + place) for place, config in enumerate(CONFIGS)]
    finals = [measured(config, 110.0, stage="final") for config in CONFIGS[1:3]]
    wrong = measured(CONFIGS[0], stage="final", outcome=Outcome.WRONG_RESULT)
    assert set(settled([*screened, *finals, wrong])) == set(CONFIGS[1:])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`gemmtune model …` in its own environment; returns its JSON output."""
    for name, place in (("RECORDED_DIR", "recorded"), ("MODEL_DIR", "models"), ("DB", "s.db")):
        monkeypatch.setenv(f"GEMMTUNE_{name}", str(tmp_path / place))
    # A few shapes are enough for this test.
    monkeypatch.setattr("tuner.cli.model.with_portfolio", partial(with_portfolio, shapes=10))

    def called(*arguments: str, expect: int = 0) -> Said:
        monkeypatch.setattr(sys, "argv", ["gemmtune", "model", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        document: Said = json.loads(capsys.readouterr().out)
        assert ended.value.code == expect, document
        return document

    return called


def test_training_says_each_step_before_it_takes_minutes(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape in ("256x256x256", "512x256x512", "512x512x1024"):
        record_problem(tmp_path / "recorded" / "h200", CONFIGS, Gemm.parse(shape))
    said: list[str] = []
    monkeypatch.setattr("tuner.cli.model.notes.print", said.append)
    run("train", "--from", "recordings")
    steps = [line.partition(": ")[2] for line in said if line.startswith(FAMILY.name)]
    assert "about half an hour" in said[0]
    assert steps == [
        "reads 3 recordings", *(f"is judged on held-out problems, part {part} of 3" for part in (1, 2, 3)),
        "grows its forest on all problems", "chooses the configs of its portfolio",
    ]  # fmt: skip


def test_one_command_trains_the_model_that_is_used_from_then_on(run: Callable[..., Said], tmp_path: Path) -> None:
    assert "0 problems" in str(run("train", expect=3)["error"])
    for shape in ("256x256x256", "512x256x512", "512x512x1024"):
        record_problem(tmp_path / "recorded" / "h200", CONFIGS, Gemm.parse(shape))
    trained = run("train")
    assert trained["candidates"] == 3 * 18
    assert Path(str(trained["file"])).parent == tmp_path / "models"
    shown = run("show")
    assert (shown["file"], shown["data"]) == (trained["file"], trained["data"])
    assert run("show", "--file", str(tmp_path / "none.npz"), expect=3)["error"]
    assert "no model was trained" in str(run("show", "--device", "NVIDIA L4")["why"])
    of_another = run("show", "--file", str(trained["file"]), "--device", "NVIDIA L4", expect=3)["error"]
    assert "was trained on NVIDIA H200, not on NVIDIA L4: " in str(of_another)
    assert "is unknown" in str(run("show", "--device", "NVIDIA Imaginary", expect=3)["error"])
