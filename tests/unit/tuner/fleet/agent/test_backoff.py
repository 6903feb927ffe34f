"""How long a worker waits before it calls a service again that could not answer."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from tests.fleet import FakeDevice
from tuner.errors import StoreError, TunerError, Unreachable, WorkerGone
from tuner.fleet.agent.agent import Agent, _Heartbeats
from tuner.fleet.agent.backoff import MOST_ASKED_SECONDS, Backoff
from tuner.fleet.agent.round_runner import RetryWhileHeld
from tuner.fleet.campaigns.records import Registration


class Noting(threading.Event):
    """Notes how long it is waited for, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


def busy(seconds: float) -> Unreachable:
    error = Unreachable("busy")
    error.retry_after = seconds
    return error


@pytest.mark.parametrize(
    ("errors", "waits"),
    [
        ([StoreError("locked")] * 6, [0.2, 0.4, 0.8, 1.6, 3.0, 3.0]),
        ([busy(0.0), busy(5.0), busy(0.0)], [0.2, 5.0, 0.8]),
        ([busy(3600.0)], [MOST_ASKED_SECONDS]),
    ],
)
def test_delays_grow_and_are_as_long_as_the_service_asks(errors: list[TunerError], waits: list[float]) -> None:
    backoff = Backoff()
    assert [backoff.after(error) for error in errors] == pytest.approx(waits)


def test_a_report_waits_as_long_as_the_service_asks() -> None:
    gone = Noting()
    assert RetryWhileHeld(gone)(Mock(side_effect=[busy(7.0), "stored"])) == "stored"
    assert gone.waits == [7.0]


def test_an_idle_worker_waits_as_long_as_the_service_asks() -> None:
    coordinator = Mock()
    coordinator.register.side_effect = [busy(6.0), Registration(1, 60.0)]
    coordinator.claim.side_effect = [busy(7.0), None]
    agent = Agent(coordinator, FakeDevice, "agent", leave_when_idle=True)
    agent._leaving = leaving = Noting()
    agent.run()
    assert leaving.waits == [6.0, 7.0]


@pytest.mark.parametrize(
    ("took", "asked", "wait"),
    [(0.0, 0.0, 1.0), (0.0, 2.0, 2.0), (0.0, 9.0, 5.0), (0.5, 0.0, 0.5), (5.0, 0.0, 0.0), (4.0, 9.0, 1.0)],
)
def test_the_next_heartbeat_waits_as_asked_but_comes_before_its_worker_is_gone(
    monkeypatch: pytest.MonkeyPatch, took: float, asked: float, wait: float
) -> None:
    at = 0.0

    def beat(*_: object) -> None:
        nonlocal at
        at += took
        raise WorkerGone("gone") if len(ended.waits) == 2 else busy(asked)

    heartbeats = _Heartbeats(Mock(beat=beat), 1, 5.0)
    heartbeats._ended = ended = Noting()
    monkeypatch.setattr("time.monotonic", lambda: at)
    heartbeats._beat()
    assert ended.waits == [5.0, wait]
