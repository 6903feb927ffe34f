"""The agent, in one process and over real HTTP: a campaign ends, whatever happens to service, round or device."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.postgres import Postgres
from tests.fleet import (
    CALM,
    HASTY,
    PROBLEMS,
    FakeDevice,
    Fleet,
    Listening,
    SlowDevice,
    eventually,
    facts,
    finals_in,
    provenance,
)
from tests.support import FAMILY, measured
from tuner.errors import FleetError, SlotTaken, UnknownCampaign, Unreachable
from tuner.evidence.store import Store
from tuner.fleet.agent.agent import Agent
from tuner.fleet.agent.coordinator import Coordinator, HttpCoordinator, LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import row_of
from tuner.fleet.campaigns.records import CampaignBudget, CampaignStatus, Progress, RoundReport, RoundTask, Timing
from tuner.fleet.campaigns.sweep import Maintenance
from tuner.fleet.embedded import EmbeddedRun
from tuner.fleet.service_client import ServiceClient
from tuner.studying.records import MOST_WITH_STRUCTURES, Trial
from tuner.studying.screening import TWINS
from workers.errors import ProcessError
from workers.ports import Worker

SMALL = CampaignBudget(candidates=40, rounds=11)
#: After 40 candidates: as many finalists of as many structures as there may be, and the library twice.
FINALS = MOST_WITH_STRUCTURES + TWINS + 2


class Running:
    """An agent in a thread of its own."""

    def __init__(
        self, coordinator: Coordinator, device: Callable[[], Worker], name: str = "agent",
        patience_seconds: float = math.inf,
    ) -> None:  # fmt: skip
        self.agent = Agent(coordinator, device, name, idle_seconds=0.05, patience_seconds=patience_seconds)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.leave()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture
def service(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[Listening]:
    """A service; indirectly parametrized by its timing."""
    with Listening(postgres.database(), getattr(request, "param", CALM)) as listening:
        yield listening


@pytest.fixture
def coordinator(service: Listening) -> Iterator[HttpCoordinator]:
    with ServiceClient(service.url) as http:
        yield HttpCoordinator(http)


def ended(store: Store, campaign_id: int) -> bool:
    return results.progress(store, campaign_id).campaign.status is CampaignStatus.FINISHED


def test_a_campaign_in_one_process(database_url: str) -> None:
    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign = Fleet(store).campaign(budget=SMALL)
        with Running(LocalCoordinator(store, CALM), FakeDevice) as running:
            eventually(lambda: ended(store, campaign.id))
        assert running.error is None
        progress, screened = results.progress(store, campaign.id), store.counts()["measurement"] - finals_in(store)
        assert (progress.problems["done"], progress.tried) == (len(PROBLEMS), screened)


def test_a_campaign_in_one_process_ends_when_nobody_reads_its_progress(database_url: str) -> None:
    def unread(_: Progress) -> None:
        raise SystemExit(1)

    with Store.open(database_url) as store:
        campaign = Fleet(store).campaign(PROBLEMS[:1])
        run = EmbeddedRun(store, campaign.id, FakeDevice, "here", CALM, unread, lambda _: None)
        # A run that goes on fails the test, and does not hang it.
        rescue = threading.Timer(60.0, run.stop)
        rescue.start()
        with pytest.raises(SystemExit):
            run.run()
        rescue.cancel()
        assert {worker.gone_because for worker in Fleet(store).workers.page(gone=True)} == {"left"}


def test_a_campaign_in_one_process_ends_when_its_store_has_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.fleet.campaigns.results.row_of", lambda session, _: row_of(session, 7))
    with Store.open(f"sqlite:///{tmp_path}/campaigns.db") as store:
        campaign = Fleet(store).campaign(PROBLEMS[:1])
        run = EmbeddedRun(store, campaign.id, FakeDevice, "here", CALM, lambda _: None, lambda _: None)
        rescue = threading.Timer(60.0, run.stop)
        rescue.start()
        with pytest.raises(UnknownCampaign, match="7"):
            run.run()
        assert rescue.is_alive()
        rescue.cancel()


def test_a_campaign_in_one_process_goes_before_others_of_its_store(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/campaigns.db") as store:
        Fleet(store).campaign(PROBLEMS[:2], priority=7)
        ours = Fleet(store).campaign(PROBLEMS[2:4], budget=SMALL)
        EmbeddedRun(store, ours.id, FakeDevice, "here", CALM, lambda _: None, lambda _: None).run()
        assert ended(store, ours.id)
        with store.transaction() as session:
            rounds = session.execute(sa.text(
                "SELECT campaign_id FROM round JOIN campaign_problem AS item ON item.id = campaign_problem_id "
                "ORDER BY round.id"
            )).scalars().all()  # fmt: skip
        assert rounds[:2] == [ours.id] * 2


def test_the_same_campaign_over_http_by_three_workers(service: Listening) -> None:
    campaign = Fleet(service.store).campaign(budget=SMALL)
    with ExitStack() as stack:
        agents = []
        for number in range(3):
            coordinator = HttpCoordinator(stack.enter_context(ServiceClient(service.url)))
            agents.append(stack.enter_context(Running(coordinator, partial(FakeDevice, number), f"agent-{number}")))
        eventually(lambda: ended(service.store, campaign.id))
    assert [running.error for running in agents] == [None] * 3
    problems = results.problems(service.store, campaign.id)
    assert [(p.status.value, p.tried, p.rounds) for p in problems] == [("done", 40, 1)] * 6
    assert service.store.counts()["measurement"] == 6 * 40 + finals_in(service.store)
    # The agents left properly.
    assert {worker.gone_because for worker in Fleet(service.store).workers.page(gone=True)} == {"left"}


@pytest.mark.parametrize("service", [replace(CALM, round_seconds=1.0)], ids=["short rounds"], indirect=True)
def test_a_long_study_takes_several_rounds_and_measures_nothing_twice(
    service: Listening, coordinator: HttpCoordinator
) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=64, rounds=11))
    with Running(coordinator, lambda: SlowDevice(seconds=0.04)):
        eventually(lambda: ended(service.store, campaign.id))
    problem = results.problems(service.store, campaign.id)[0]
    assert (problem.status.value, problem.tried) == ("done", 64)
    assert problem.rounds >= 2
    assert service.store.counts()["measurement"] == 64 + FINALS


def test_the_scatter_of_earlier_rounds_reaches_the_next_one(
    service: Listening, coordinator: HttpCoordinator
) -> None:
    Fleet(service.store).campaign(PROBLEMS[:1])
    worker, by = coordinator.register("worker-0", facts()), provenance()
    taken = tuple(measured(FAMILY.config({"tile_n": n}), 10.0, PROBLEMS[0]) for n in (64, 128))
    task = coordinator.claim(worker.worker_id)
    assert task
    assert coordinator.begin(task, by).tried == ()
    coordinator.finish(task, RoundReport(taken, by, 0.1))
    again = coordinator.claim(worker.worker_id)
    assert again
    assert coordinator.begin(again, by).tried == tuple(map(Trial.of, taken))


def test_cancelling_reaches_a_running_round(service: Listening, coordinator: HttpCoordinator) -> None:
    fleet = Fleet(service.store)
    campaign = fleet.campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=500))
    device = SlowDevice(seconds=0.1)
    with Running(coordinator, lambda: device):
        assert device.began.wait(60)
        fleet.campaigns.cancel(campaign.id)
        eventually(lambda: results.progress(service.store, campaign.id).rounds_running == 0)
        stopped_after = device.measured
        assert stopped_after < 500
    assert service.store.counts()["measurement"] == stopped_after
    eventually(lambda: results.problems(service.store, campaign.id)[0].status.value == "skipped")


def test_a_drained_worker_hands_its_round_back_finished_and_leaves(
    service: Listening, coordinator: HttpCoordinator
) -> None:
    fleet = Fleet(service.store)
    campaign = fleet.campaign(PROBLEMS[:2], budget=SMALL)
    device = SlowDevice(seconds=0.0, held=True)
    with Running(coordinator, lambda: device) as running:
        assert device.began.wait(60)
        fleet.workers.drain(fleet.workers.page()[0].id)
        device.go_on.set()
        eventually(lambda: not running.alive)
    assert (running.error, running.agent.rounds) == (None, 1)
    assert [p.status.value for p in results.problems(service.store, campaign.id)] == ["done", "waiting"]


def test_an_agent_that_is_asked_to_leave_reports_what_it_has(service: Listening, coordinator: HttpCoordinator) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=500))
    device = SlowDevice(seconds=0.05)
    with Running(coordinator, lambda: device) as running:
        assert device.began.wait(60)
        running.agent.leave()
    assert device.closed
    problem = results.problems(service.store, campaign.id)[0]
    assert (problem.status.value, problem.attempts, problem.tried) == ("waiting", 0, device.measured)


def test_a_worker_that_leaves_while_the_answer_to_its_claim_is_lost_hands_the_round_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database_url) as store:
        fleet, coordinator = Fleet(store), LocalCoordinator(store, CALM)
        campaign, claim = fleet.campaign(PROBLEMS[:1], budget=SMALL), coordinator.claim
        running = Running(coordinator, FakeDevice)

        def lost(worker_id: int) -> RoundTask | None:
            claim(worker_id)
            running.agent.leave()
            monkeypatch.undo()
            raise Unreachable("the connection broke")

        monkeypatch.setattr(coordinator, "claim", lost)
        with running:
            eventually(lambda: not running.alive)
        assert running.error is None
        assert {worker.gone_because for worker in fleet.workers.page(gone=True)} == {"left"}
        problem = results.problems(store, campaign.id)[0]
        assert (problem.status.value, problem.attempts) == ("waiting", 0)


def test_a_service_that_restarts_costs_no_round(service: Listening, coordinator: HttpCoordinator) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=48, rounds=11))
    device = SlowDevice(seconds=0.04)
    with Running(coordinator, lambda: device):
        assert device.began.wait(60)
        service.stop()
        service.start()
        eventually(lambda: ended(service.store, campaign.id))
    assert device.measured == 48
    problem = results.problems(service.store, campaign.id)[0]
    assert (problem.status.value, problem.attempts) == ("done", 0)


def test_a_database_that_restarts_costs_no_round(postgres: Postgres) -> None:
    with Listening(postgres.database()) as service, ServiceClient(service.url) as http:
        campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=CampaignBudget(candidates=48, rounds=11))
        device = SlowDevice(seconds=0.04)
        with Running(HttpCoordinator(http), lambda: device):
            assert device.began.wait(60)
            postgres.restart()
            eventually(lambda: ended(service.store, campaign.id))
        assert device.measured == 48
        assert service.store.counts()["measurement"] == 48 + FINALS


class Broken(FakeDevice):
    """A device that can't prepare anything."""

    def begin(self, problem: Any) -> Any:  # noqa: ANN401
        raise ProcessError("the GPU fell off the bus")


def test_a_device_that_fails_is_opened_again(service: Listening, coordinator: HttpCoordinator) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:2], budget=SMALL)
    devices = iter([Broken(), FakeDevice(), FakeDevice()])
    with Running(coordinator, lambda: next(devices)):
        eventually(lambda: ended(service.store, campaign.id))
    problems = results.problems(service.store, campaign.id)
    assert [(p.status.value, p.rounds) for p in problems] == [("done", 2), ("done", 1)]


def test_a_device_that_is_gone_ends_its_agent_and_not_the_problem(
    service: Listening, coordinator: HttpCoordinator
) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=SMALL)
    devices: Iterator[Worker] = iter([Broken()])

    def open_device() -> Worker:
        try:
            return next(devices)
        except StopIteration:
            raise ProcessError("no such GPU any more") from None

    with Running(coordinator, open_device) as running:
        eventually(lambda: not running.alive)
    assert isinstance(running.error, ProcessError)
    problem = results.problems(service.store, campaign.id)[0]
    assert (problem.status.value, problem.attempts) == ("waiting", 1)


def test_a_second_agent_on_a_live_gpu_gives_up(
    service: Listening, coordinator: HttpCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.fleet.agent.agent._SLOT_SECONDS", 0.5)
    monkeypatch.setattr("tuner.fleet.agent.agent._NOTICED_SECONDS", 0.5 - CALM.silence_seconds)
    with Running(coordinator, FakeDevice) as first, ServiceClient(service.url) as http:
        eventually(lambda: len(Fleet(service.store).workers.page()) == 1)
        with Running(HttpCoordinator(http), FakeDevice, "second") as second:
            eventually(lambda: not second.alive)
        assert isinstance(second.error, SlotTaken)
        assert first.alive


@pytest.mark.parametrize("service", [HASTY], ids=["hasty"], indirect=True)
def test_an_agent_waits_for_a_dead_ones_gpu_however_rare_heartbeats_are(
    service: Listening, coordinator: HttpCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As 30 s are where a heartbeat comes every minute.
    monkeypatch.setattr("tuner.fleet.agent.agent._SLOT_SECONDS", 0.1)
    coordinator.register("dead", FakeDevice().facts)
    with Running(coordinator, FakeDevice) as running:
        eventually(lambda: [worker.name for worker in Fleet(service.store).workers.page()] == ["agent"])
    assert running.error is None


def asleep(*_: object, **__: object) -> None:
    raise Unreachable("asleep")


@pytest.mark.parametrize("service", [HASTY], ids=["hasty"], indirect=True)
def test_a_worker_that_slept_registers_again(
    service: Listening, coordinator: HttpCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Fleet(service.store).campaign(PROBLEMS[:1], budget=SMALL)
    device = SlowDevice(seconds=0.03)
    with Running(coordinator, lambda: device):
        assert device.began.wait(60)
        # As after a SIGSTOP: the agent is silent, then continues as if nothing had happened.
        monkeypatch.setattr(coordinator._service, "call", asleep)
        eventually(lambda: any(w.status == "gone" for w in Fleet(service.store).workers.page(gone=True)))
        monkeypatch.undo()
        eventually(lambda: ended(service.store, campaign.id))
    problem = results.problems(service.store, campaign.id)[0]
    assert (problem.status.value, problem.tried) == ("done", 40)
    assert service.store.counts()["measurement"] == 40 + FINALS


def test_patience_ends_where_there_is_no_service(service: Listening) -> None:
    with ServiceClient("http://127.0.0.1:9") as nobody, pytest.raises(Unreachable):
        Agent(HttpCoordinator(nobody), FakeDevice, "agent", patience_seconds=0.0).run()

    Fleet(service.store).campaign(PROBLEMS[:1])
    device = SlowDevice(held=True)
    with ServiceClient(service.url) as http:
        with Running(HttpCoordinator(http), lambda: device, patience_seconds=0.0) as running:
            assert device.began.wait(60)
            service.stop()
            device.go_on.set()
            eventually(lambda: not running.alive)
        service.start()
    assert isinstance(running.error, Unreachable)
    assert device.closed


def test_a_service_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    with ServiceClient("http://127.0.0.1:9") as http, Running(HttpCoordinator(http), FakeDevice) as running:
        threading.Event().wait(0.5)
        assert running.alive
    assert running.error is None


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://", "http://tune.example:8643"])
def test_a_url_that_would_not_do_is_refused(url: str) -> None:
    with pytest.raises(FleetError, match="http"):
        ServiceClient(url, token="secret")


def test_timing_keeps_two_heartbeats_and_a_little() -> None:
    assert Timing().silence_seconds == 11.0
    assert Timing(heartbeat_seconds=0.2).silence_seconds == pytest.approx(0.5)
