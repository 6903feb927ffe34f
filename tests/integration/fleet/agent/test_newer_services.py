"""Workers of a service that is newer, or has plugins that they lack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from benchmarks.postgres import Postgres
from tests.fleet import CALM, PROBLEMS, FakeDevice, Fleet, Listening, eventually
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import HttpCoordinator, LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import RoundTask
from tuner.fleet.campaigns.sweep import Maintenance
from tuner.fleet.service_client import ServiceClient


@pytest.mark.parametrize("newer", [{"problem_key": "sparse_gemm:bf16:64"}, {"only": ("sm90_wgmma:later=1",)}])
def test_a_round_of_a_newer_version_fails_and_ends_no_worker(
    database_url: str, monkeypatch: pytest.MonkeyPatch, newer: dict[str, Any]
) -> None:
    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign, coordinator = Fleet(store).campaign(PROBLEMS[:1], budget=SMALL), LocalCoordinator(store, CALM)
        claim, changes = coordinator.claim, iter([newer])

        def claimed(worker_id: int) -> RoundTask | None:
            task = claim(worker_id)
            return task and replace(task, **next(changes, {}))

        monkeypatch.setattr(coordinator, "claim", claimed)
        with Running(coordinator, FakeDevice) as running:
            eventually(lambda: ended(store, campaign.id) or not running.alive)
        assert running.error is None
        problem = results.problems(store, campaign.id)[0]
        assert (problem.status.value, problem.rounds) == ("done", 2)
        with store.transaction() as session:
            reason = session.scalars(select(RoundRow.reason).order_by(RoundRow.id)).first()
        assert reason is not None
        assert reason.startswith("this worker can't run the round: ")


def test_a_worker_reads_what_a_newer_service_tells(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with Listening(postgres.database()) as service, ServiceClient(service.url) as http:
        campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=SMALL)
        coordinator = HttpCoordinator(http)
        call, later = http.call, "sm90_wgmma:later=1"

        def newer(method: str, path: str, *rest: Any, **named: Any) -> Any:  # noqa: ANN401
            said = call(method, path, *rest, **named)
            if path.endswith(":claim") and said:
                said["later"] = 1
            if path.endswith(":begin"):
                said["winners"].append(later)
                said["tried"].append({"config": later, "outcome": "correct", "median_us": 1.0, "noise": 0.0})
            return said

        monkeypatch.setattr(http, "call", newer)
        with Running(coordinator, FakeDevice) as running:
            eventually(lambda: ended(service.store, campaign.id) or not running.alive)
        assert running.error is None
        problem = results.problems(service.store, campaign.id)[0]
        assert (problem.status.value, problem.tried, problem.rounds) == ("done", 40, 1)
