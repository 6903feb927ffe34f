"""What `gemmtune tune` prints: where all of ours fail in the finals, and where the winner does not become best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from space.config import Config
from tests.fleet import FakeDevice, FakeRound
from tests.support import FAMILY, PROBLEM, measured, study_key
from tuner.cli.tune import _print_report, _report_json
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.studying.study import Budget, tune
from workers.measurement import Measurement, Outcome


def test_a_best_of_the_librarys_is_printed_without_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = FakeRound.finals

    def finals(self: FakeRound, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        return tuple(
            one if one.config.family == "cublaslt" else
            replace(one, outcome=Outcome.WRONG_RESULT, samples_us=(), verification=None, detail="wrong later")
            for one in timed(self, finalists, turns)
        )  # fmt: skip

    monkeypatch.setattr(FakeRound, "finals", finals)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        _print_report(tune(store, FakeDevice(), PROBLEM, Budget(candidates=3)), FakeDevice().facts, None)
    said = capsys.readouterr().out
    assert "cublaslt: rank=" in said
    assert "fastest of ours" not in said


def test_the_document_says_too_that_a_better_one_stands(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        report = tune(store, FakeDevice(), PROBLEM, Budget(candidates=3))
        assert _report_json(report)["remarks"] == ()
        faster = measured(FAMILY.config({}), report.best.median_us / 2, stage="final", policy=report.best.policy)
        study = store.begin_study(study_key(), fresh=True)
        kept = store.record(study.id, faster, report.best.winner.provenance)
        store.set_bests([Best(PROBLEM, report.best.device, "cuda", kept, None, None, None, 1, {})])
        (remark,) = _report_json(tune(store, FakeDevice(), PROBLEM, Budget(candidates=3), fresh=True))["remarks"]
    assert f"is not best under {report.best.policy.value}: slower" in remark


def test_an_unknown_cards_report_names_no_commands_that_refuse_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = FakeDevice().facts
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        report = tune(store, FakeDevice(), PROBLEM, Budget(candidates=3))
    _print_report(report, facts, None)
    assert "gemmtune best" in capsys.readouterr().out
    _print_report(report, replace(facts, name="an unknown card"), None)
    assert "gemmtune best" not in capsys.readouterr().out


def test_a_store_in_memory_is_gone_and_no_command_is_named_that_would_look_into_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Store.open("sqlite://") as store:
        _print_report(tune(store, FakeDevice(), PROBLEM, Budget(candidates=3)), FakeDevice().facts, "sqlite://")
    said = capsys.readouterr().out
    assert "in memory, and nothing of it is kept: name a file with --db" in said
    assert "next:" not in said
