"""The thread that writes misses down."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest

from api import miss_counter
from api.miss_counter import MissCounter


def test_a_defect_ends_no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Mapping[Any, int]] = []
    written = threading.Event()

    def add(_: object, counts: Mapping[Any, int]) -> None:
        kept.append(counts)
        written.set()
        if len(kept) == 1:
            raise RuntimeError("planted")

    monkeypatch.setattr(miss_counter, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("tuner.evidence.misses.add", add)
    counter = MissCounter(cast(Any, None))
    counter.count("first", "gpu")
    counter.start()
    assert written.wait(60)
    counter.count("second", "gpu")
    monkeypatch.setattr(miss_counter, "_PAUSE_SECONDS", 60.0)
    counter.stop()
    assert kept == [{("first", "gpu"): 1}, {("second", "gpu"): 1}]
