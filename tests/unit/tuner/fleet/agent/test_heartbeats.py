"""Heartbeats that a service does not take: the worker's log says so, and not at every one of them."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from tuner.errors import Unreachable
from tuner.fleet.agent.agent import _Heartbeats
from tuner.fleet.agent.coordinator import Coordinator


class Away:
    """A service that never answers; `over` is set once it was asked five times."""

    def __init__(self) -> None:
        self.over, self._asked = threading.Event(), 0

    def beat(self, *_: object) -> None:
        self._asked += 1
        if self._asked == 5:
            self.over.set()
        raise Unreachable("the service does not answer")


def test_an_outage_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    away = Away()
    with _Heartbeats(cast(Coordinator, away), 1, 0.01):
        assert away.over.wait(60)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a heartbeat failed: the service does not answer"]
