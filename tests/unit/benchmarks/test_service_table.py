"""Stores of load tests hold what rules of today allow, so that it is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import service_table
from benchmarks.dashboard import stores
from benchmarks.service_table import fill
from tuner.evidence.legality import forbidden
from tuner.evidence.store import Store


def test_no_rule_forbids_a_best_nor_its_copy_of_a_larger_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_table, "_MADE", 150)
    monkeypatch.setattr(service_table, "CONFIGS", 64)
    with Store.open("sqlite:///:memory:") as store:
        problems = fill(store, 200)
        bests = store.bests()
    assert {best.problem for best in bests} == set(problems)
    assert {best.problem.batch for best in bests} == {1, 2}
    assert [best.problem.key for best in bests if forbidden(best.problem, best.config, best.device)] == []


def test_the_crowded_problem_of_the_pages_has_configs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (service_table, stores):
        monkeypatch.setattr(module, "CONFIGS", 8)
    made = stores.filled(tmp_path / "pages.db", bests=40, measurements=16)
    with made.store as store:
        stored = list(store.every(service_table.DEVICE, made.crowded))
    assert len(stored) == 16
    assert [one for one in stored if forbidden(made.crowded, one.measurement.config, service_table.DEVICE)] == []
