"""The fleet's doctor on both databases: silent on a healthy fleet, and right about planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text, update

from api.access import AccessPolicy
from api.app import create_app
from benchmarks.postgres import Postgres
from tests.fleet import BY_HAND, PROBLEMS, Fleet
from tests.integration.api.asking import serving
from tuner.evidence import tokens
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.store import Store
from tuner.fleet.checkup import Check, fleet_checkup, service_check


def looked(url: str) -> dict[str, Check]:
    return {check.name: check for check in fleet_checkup(url, BY_HAND, settle=lambda _: None)}


def states(url: str) -> dict[str, str]:
    return {name: check.state for name, check in looked(url).items()}


WELL = {"database": "ok", "schema": "ok", "contents": "ok", "clock": "ok", "disk": "ok"}


def test_a_fleet_that_works_is_well(fleet: Fleet, database_url: str) -> None:
    assert states(database_url) == WELL
    assert "rows: best 0, measurement 0" in looked(database_url)["contents"].found
    fleet.campaign()
    fleet.hand().claimed()
    found = looked(database_url)
    assert {name: check.state for name, check in found.items()} == WELL | {
        "queue": "ok", "workers": "ok", "problems": "ok",
    }  # fmt: skip
    assert found["queue"].found.startswith("rounds: 5 queued, 1 running")
    assert found["workers"].found.startswith("1 live, 0 of them draining")


def test_problems_without_a_worker_are_told_with_their_queue(fleet: Fleet, database_url: str) -> None:
    fleet.campaign()
    workers = looked(database_url)["workers"]
    assert (workers.state, "NVIDIA H200/sm_90a/cuda" in workers.found) == ("broken", True)


def test_workers_that_drain_are_none_for_what_waits(fleet: Fleet, database_url: str) -> None:
    fleet.campaign()
    fleet.workers.drain(fleet.hand().id)
    workers = looked(database_url)["workers"]
    assert (workers.state, "no worker serves it that stays" in workers.found) == ("broken", True)


def test_a_worker_that_nobody_misses_is_told(fleet: Fleet, database_url: str) -> None:
    fleet.hand()
    fleet.pass_time(1e6)
    workers = looked(database_url)["workers"]
    assert (workers.state, "worker-0" in workers.found, "serve" in workers.fix) == ("broken", True, True)


def test_a_queue_that_lost_a_job_is_told_until_it_is_repaired(postgres: Postgres) -> None:
    url = postgres.database()
    with Store.open(url) as store:
        fleet = Fleet(store)
        fleet.campaign()
        fleet.hand()
        with store.transaction(writes=True) as session:
            session.execute(text("DELETE FROM procrastinate_jobs WHERE queueing_lock = '2'"))
        queue = looked(url)["queue"]
        assert (queue.state, "without a job: problem 2" in queue.found) == ("broken", True)
        fleet.sweeper.sweep()
        assert looked(url)["queue"].state == "ok"


def test_a_problem_that_is_open_without_a_round_is_told(fleet: Fleet, database_url: str) -> None:
    fleet.campaign(PROBLEMS[:1])
    fleet.hand().claimed()
    with fleet.store.transaction(writes=True) as session:
        session.execute(text("UPDATE round SET status = 'withdrawn', job_id = NULL"))
    assert "open without a round" in looked(database_url)["queue"].found


def test_parked_problems_are_worth_a_look(fleet: Fleet, database_url: str) -> None:
    fleet.campaign()
    fleet.hand()
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignProblemRow).where(CampaignProblemRow.id == 1).values(status="parked"))
    problems = looked(database_url)["problems"]
    assert (problems.state, "1 of campaign 1" in problems.found) == ("warning", True)
    fleet.campaign()
    assert looked(database_url)["problems"].state == "ok"


def test_an_older_schema_is_told_and_left_alone(database_url: str) -> None:
    Store.open(database_url).close()
    with Store.open(database_url) as store, store.transaction(writes=True) as session:
        session.execute(text("UPDATE gemmtune_alembic_version SET version_num = '0001'"))
    for _ in range(2):
        assert looked(database_url)["schema"].state == "warning"
    assert set(looked(database_url)) == {"database", "schema"}


@pytest.mark.parametrize("url", ["postgresql+psycopg://nobody@127.0.0.1:9/none", "mysql://x", "sqlite:////proc/x/y"])
def test_a_database_that_is_not_there_is_one_line(url: str) -> None:
    (check,) = fleet_checkup(url, BY_HAND)
    assert (check.name, check.state in ("broken", "absent")) == ("database", True)


def test_a_service_is_asked_for_readiness_and_token(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        _, secret = tokens.make(store, "node", ["work"])
        application = create_app(store, AccessPolicy(tokens=True))
        with serving(application) as url:
            application.state.follower.poll()
            assert service_check(url, secret).state == "ok"
            refused = service_check(url, "gt_wrong")
            assert (refused.state, "token" in refused.found) == ("broken", True)
    assert service_check("http://127.0.0.1:9", None).state == "broken"


def test_a_token_that_no_header_can_carry_is_told_and_not_sent() -> None:
    for token in ("gt_é", "gt_one\ntwo"):
        check = service_check("http://127.0.0.1:9", token)
        assert (check.state, "such as a line break" in check.found) == ("broken", True)
