"""GPU time is charged for what a round can have taken, whatever clocks say, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.fleet import PROBLEMS, Fleet
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.clock import now
from tuner.fleet.campaigns.records import RoundReport
from tuner.fleet.campaigns.reports import LONGEST_SECONDS
from tuner.fleet.campaigns.workers import LiveWorker, touch

#: The host slept, the clock was set, or all services were away.
NIGHT: Final = timedelta(hours=12)


@pytest.fixture
def fleet(database_url: str) -> Iterator[Fleet]:
    with Store.open(database_url) as store:
        yield Fleet(store)


@pytest.mark.parametrize(("busy_seconds", "charged"), [(1.0, LONGEST_SECONDS), (3_000.0, 3_000.0)])
def test_a_round_costs_what_rounds_take_or_its_worker_says(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, busy_seconds: float, charged: float
) -> None:
    def later(*given: Any) -> LiveWorker:  # noqa: ANN401
        worker = touch(*given)
        return worker._replace(at=worker.at + NIGHT)

    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    task = hand.claimed()
    monkeypatch.setattr("tuner.fleet.campaigns.rounds.touch", later)
    fleet.rounds.finish(task.round_id, task.lease, RoundReport(busy_seconds=busy_seconds, failure="planted"))
    assert results.progress(fleet.store, campaign.id).gpu_seconds == charged
    assert fleet.workers.page()[0].busy_seconds == busy_seconds


def test_a_round_whose_worker_died_while_nobody_listened_does_not_cost_the_night(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, hand = fleet.campaign(PROBLEMS[:1]), fleet.hand()
    hand.claimed()
    monkeypatch.setattr("tuner.fleet.campaigns.sweep.now", lambda session: now(session) + NIGHT)
    fleet.fall_silent()
    assert fleet.sweeper.sweep()["workers lost"] == 1
    assert results.progress(fleet.store, campaign.id).gpu_seconds == LONGEST_SECONDS
