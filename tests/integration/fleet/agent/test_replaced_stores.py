"""Workers that go on while their service gets an empty or a restored store, which numbers workers anew."""

from __future__ import annotations

import pytest

from tests.fleet import CALM, PROBLEMS, FakeDevice, Fleet, eventually
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import Registration


@pytest.mark.parametrize("at_work", [False, True], ids=["idle", "at work"])
def test_a_worker_whose_number_another_has_got_registers_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch, at_work: bool
) -> None:
    with Store.open(database_url) as store:
        fleet, coordinator = Fleet(store), LocalCoordinator(store, CALM)
        campaign, other = fleet.campaign(PROBLEMS[:1], budget=SMALL), fleet.hand(1)
        held = other.claim() if at_work else None
        register, numbers = coordinator.register, iter([Registration(other.id, 4.0)])
        monkeypatch.setattr(coordinator, "register", lambda *who: next(numbers, None) or register(*who))
        with Running(coordinator, FakeDevice) as running:
            eventually(lambda: len(fleet.workers.page()) == 2 or not running.alive)
            # The stranger's claim may have begun a round of the other, which gets it as if the answer had been lost.
            other.work(held or other.claimed())
            eventually(lambda: bool(fleet.sweeper.sweep()) or ended(store, campaign.id))
        assert running.error is None
        problem = results.problems(store, campaign.id)[0]
        assert (problem.status.value, problem.attempts, problem.rounds) == ("done", 0, 1)
