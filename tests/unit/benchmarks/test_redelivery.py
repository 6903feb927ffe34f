"""`benchmarks.redelivery` strikes a fleet that is warm: a cold one compiles for longer than the promise."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import redelivery


def test_nothing_is_struck_before_a_problem_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = [0, 0, 1]

    @contextmanager
    def postgres(durable: bool) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(database=lambda: f"sqlite:///{tmp_path}/store.db")

    fleet = SimpleNamespace(stop=lambda: None, start_worker=lambda: None)
    monkeypatch.setattr(redelivery, "running_postgres", postgres)
    monkeypatch.setattr(redelivery, "plant", lambda *_: [])
    monkeypatch.setattr(redelivery, "Fleet", lambda *_: fleet)
    monkeypatch.setattr(redelivery, "begin_campaign", lambda *_: 1)
    monkeypatch.setattr(redelivery.results, "progress", lambda *_: SimpleNamespace(problems={"done": done.pop(0)}))
    redelivery.measure(0, 0, 1, 5.0, random.Random(0))
    assert done == []
