"""Tuning a model's products within a budget of wall time, and the table that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from benchmarks.model import tuning
from space.kinds.gemm import Gemm
from tests.support import DEVICE
from tuner.tables.shapes import Shapes


def test_shapes_are_tuned_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: Sequence[Shapes] = [Shapes({Gemm.of(4096, 4096, 4096): 1, Gemm.of(8192, 8192, 8192): 1})]
    plan = tuning.Plan(tmp_path / "x.db", ["recorded:h200"], 60.0, 14, 60.0, 5)
    # Each takes a minute.
    tune = Mock(wraps=tuning.tune)
    monkeypatch.setattr(tuning, "tune", tune)
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: 60.0 * tune.call_count))
    assert tuning.in_order(listed, DEVICE)[0] == Gemm.of(8192, 8192, 8192)
    done = tuning.tuned(listed, DEVICE, plan)
    assert (done.count, list(done.skipped)) == (1, ["bf16 nt 4096x4096x4096"])
    chosen = tuning.exported(plan.db, done.device, {problem.key for problem in listed[0].counts}, 1.0)
    assert len(chosen.library) + len(chosen.entries) == 1
    assert tuning.written(chosen, tmp_path / "t.json").exists()
    # What the store has is not tuned again, and not said to be.
    again = tuning.tuned(listed, DEVICE, plan)
    assert (again.known, again.count) == (1, 0)


def test_a_device_that_cannot_be_opened_is_the_reason_and_no_budget(tmp_path: Path) -> None:
    listed: Sequence[Shapes] = [Shapes({Gemm.of(4096, 4096, 4096): 1})]
    done = tuning.tuned(listed, DEVICE, tuning.Plan(tmp_path / "x.db", ["recorded:none"], 60.0, 14, 60.0, 5))
    (why,) = done.skipped.values()
    assert why.startswith("recorded:none: ")
    assert done.count == 0
