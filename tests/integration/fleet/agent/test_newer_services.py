"""Workers of a service that is newer, or has plugins that they lack; and newer workers of an older service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, select

from benchmarks.postgres import Postgres
from space.problem import Problem
from tests.fleet import CALM, PROBLEMS, FakeDevice, Fleet, Listening, eventually
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.errors import NewerContent, OtherVersion, ResultRefused
from tuner.evidence import codec
from tuner.evidence.campaign_models import CampaignProblemRow, RoundRow
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import HttpCoordinator, LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import RoundTask
from tuner.fleet.campaigns.sweep import Maintenance
from tuner.fleet.service_client import ServiceClient, fleet_error


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


def test_a_problem_that_neither_worker_nor_store_can_read_ends_its_rounds_and_its_campaign(database_url: str) -> None:
    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign = Fleet(store).campaign(PROBLEMS[:1], budget=SMALL)
        with store.transaction(writes=True) as session:
            newer = ProblemRow(key="sparse_gemm:bf16:64", m=1, n=1, k=1, kind="sparse_gemm", fields={})
            session.add(newer)
            session.flush()
            like = session.scalars(select(CampaignProblemRow)).one()
            names = {*inspect(CampaignProblemRow).columns.keys()} - {"id", "problem_id"}
            session.add(CampaignProblemRow(**{name: getattr(like, name) for name in names}, problem_id=newer.id))
        with Running(LocalCoordinator(store, CALM), FakeDevice) as running:
            eventually(lambda: ended(store, campaign.id) or not running.alive)
        assert running.error is None
        assert Fleet(store).statuses(campaign.id) == {"done": 1}
        found = results.summary(store, campaign.id)
        assert (found.progress.problems["parked"], found.progress.problems["open"]) == (1, 0)
        (why,) = found.parked
        assert why.endswith("before any candidate")


def test_a_problem_that_only_its_worker_can_read_ends_its_rounds_and_its_campaign(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = codec.problem_of

    def of_this_version(key: str) -> Problem:
        if key == PROBLEMS[0].key:
            raise NewerContent("of a plugin that is not here")
        return read(key)

    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign = Fleet(store).campaign(PROBLEMS[:2], budget=SMALL)
        monkeypatch.setattr(codec, "problem_of", of_this_version)
        with Running(LocalCoordinator(store, CALM), FakeDevice) as running:
            eventually(lambda: ended(store, campaign.id) or not running.alive)
        assert running.error is None
        found = results.summary(store, campaign.id)
        assert (found.progress.problems["parked"], found.progress.problems["done"]) == (1, 1)


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


@pytest.mark.parametrize("call", ["begin", "announce", "finish"])
def test_a_worker_whose_reports_an_older_service_does_not_take_ends_and_is_no_problems_fault(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listening(f"sqlite:///{tmp_path}/store.db") as service, ServiceClient(service.url) as http:
        campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=SMALL)
        send = http.call

        def newer(method: str, path: str, body: Any = None, **named: Any) -> Any:  # noqa: ANN401
            if path.endswith(f":{call}") and not body.get("handed_back"):
                body = body | {"later": None}
            return send(method, path, body, **named)

        monkeypatch.setattr(http, "call", newer)
        with Running(HttpCoordinator(http), FakeDevice) as running:
            eventually(lambda: not running.alive or ended(service.store, campaign.id))
        assert isinstance(running.error, OtherVersion)
        assert "/later: no such field" in str(running.error)
        assert "upgrade the service first" in str(running.error)
        problem = results.problems(service.store, campaign.id)[0]
        assert (problem.status.value, problem.attempts, problem.rounds) == ("waiting", 0, 1)
        assert {worker.gone_because for worker in Fleet(service.store).workers.page(gone=True)} == {"left"}


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("/measurements/0/policy: Input should be 'burst' or 'chain', not \"later\"", OtherVersion),
        ("/provenance/nvrtc: Field required; see /openapi.json for the schema", OtherVersion),
        ("/measurements/0/clocks/power_w: Input should be less than or equal to 100000, not 1e9", ResultRefused),
    ],
)
def test_values_that_a_device_gave_are_no_other_version(detail: str, expected: type[Exception]) -> None:
    assert type(fleet_error(422, "/problems/malformed-request", detail)) is expected
