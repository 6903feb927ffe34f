"""Finals take minutes. Whoever is told to end within them reports what was screened, and a cancelled round ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from space.config import Config
from space.kinds.gemm import Gemm
from tests.fleet import CALM, HASTY, PROBLEMS, FakeDevice, FakeRound, Fleet, eventually, provenance
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.agent.giving_up import GivenUp, unless
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.sweep import Maintenance
from workers.errors import ProcessError
from workers.measurement import Measurement


class LongFinals(FakeDevice):
    """A device whose finals take until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.ended = threading.Event(), threading.Event()

    def begin(self, problem: Gemm) -> _LongRound:
        return _LongRound(self, problem)

    def close(self) -> None:
        super().close()
        self.ended.set()


class _LongRound(FakeRound):
    def __init__(self, device: LongFinals, problem: Gemm) -> None:
        super().__init__(problem, provenance(), lambda _: False)
        self._device = device

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        self._device.began.set()
        assert self._device.ended.wait(60)
        raise ProcessError("the GPU process was closed: open the device again")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def test_a_worker_that_is_told_to_end_in_its_finals_reports_what_it_screened(store: Store) -> None:
    campaign, device = Fleet(store).campaign(PROBLEMS[:1], budget=SMALL), LongFinals()
    with Running(LocalCoordinator(store, CALM), lambda: device) as running:
        assert device.began.wait(60)
    assert (running.error, running.agent.rounds, device.closed) == (None, 1, True)
    problem = results.problems(store, campaign.id)[0]
    assert (problem.status.value, problem.attempts, problem.tried) == ("waiting", 0, 40)
    with Maintenance(store, CALM), Running(LocalCoordinator(store, CALM), FakeDevice, "another"):
        eventually(lambda: ended(store, campaign.id))
    problem = results.problems(store, campaign.id)[0]
    assert (problem.status.value, problem.tried) == ("done", 40)
    screened = [one.measurement.config for one in store.page(limit=1000) if one.measurement.stage == "screen"]
    assert (len(screened), len(set(screened))) == (40, 40)


def test_cancelling_reaches_a_worker_in_its_finals_and_it_goes_on_with_a_fresh_device(store: Store) -> None:
    fleet, long = Fleet(store, HASTY), LongFinals()
    cancelled = fleet.campaign(PROBLEMS[:1], budget=SMALL)
    devices = iter([long, FakeDevice()])
    with Maintenance(store, CALM), Running(LocalCoordinator(store, HASTY), lambda: next(devices)):
        assert long.began.wait(60)
        fleet.campaigns.cancel(cancelled.id)
        following = fleet.campaign(PROBLEMS[1:2], budget=SMALL)
        eventually(lambda: ended(store, following.id))
    assert results.problems(store, following.id)[0].status.value == "done"
    assert results.problems(store, cancelled.id)[0].status.value == "skipped"


def test_what_a_call_raises_is_raised_and_what_it_returns_is_returned() -> None:
    def fail() -> int:
        raise ProcessError("gone")

    assert unless(lambda: False, lambda: 7, lambda: None) == 7
    with pytest.raises(ProcessError, match="gone"):
        unless(lambda: False, fail, lambda: None)


def test_an_unwanted_call_is_ended_before_its_caller_goes_on() -> None:
    ended = threading.Event()
    with pytest.raises(GivenUp):
        unless(lambda: True, lambda: ended.wait(60), ended.set)
    assert not [thread for thread in threading.enumerate() if thread.name == "given up if unwanted"]
