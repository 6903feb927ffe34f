"""The store of load tests is filled with bests that are served: rules of today allow each."""

from __future__ import annotations

import pytest

from benchmarks import service_table
from benchmarks.service_table import fill
from tuner.evidence.legality import forbidden
from tuner.evidence.store import Store


def test_no_rule_forbids_a_best_nor_its_copy_of_a_larger_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_table, "_MADE", 150)
    with Store.open("sqlite:///:memory:") as store:
        problems = fill(store, 200)
        bests = store.bests()
    assert {best.problem for best in bests} == set(problems)
    assert {best.problem.batch for best in bests} == {1, 2}
    assert [best.problem.key for best in bests if forbidden(best.problem, best.config, best.device)] == []
