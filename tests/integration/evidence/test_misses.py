"""Misses that several services write at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, event

from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.support import DEVICE
from tuner.evidence import misses
from tuner.evidence.store import Store

KEYS = [(Gemm(m, 64, 64).key, DEVICE) for m in (1, 2, 3, 4)]


def test_two_services_that_drop_each_others_questions_both_write(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misses, "MOST_MISSES", 2)
    both = threading.Barrier(2)

    def meet(_connection: object, _cursor: object, statement: str, *_: Any) -> None:  # noqa: ANN401
        if statement.startswith("DELETE FROM miss"):
            with suppress(threading.BrokenBarrierError):
                both.wait(1)

    with Store.open(postgres.database()) as store, ThreadPoolExecutor(2) as services:
        misses.add(store, {KEYS[0]: 1, KEYS[1]: 1})
        event.listen(Engine, "before_cursor_execute", meet)
        try:
            # Each asks again for what the other drops.
            writing = [services.submit(misses.add, store, {KEYS[n]: 1, KEYS[n + 2]: 5}) for n in (0, 1)]
            for each in writing:
                each.result()
        finally:
            event.remove(Engine, "before_cursor_execute", meet)
        assert [miss.count for miss in misses.page(store)[0]] == [5, 5]
