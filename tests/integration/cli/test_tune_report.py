"""What `gemmtune tune` prints where all of ours fail in the finals: the library's algorithm is the best, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from space.config import Config
from tests.fleet import FakeDevice, FakeRound
from tests.support import PROBLEM
from tuner.cli.tune import _print_report
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
