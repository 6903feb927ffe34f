"""Hostile text in every call that stores some, on both databases: stored as it is, or refused; never retried."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.app import create_app
from space.errors import SpaceError
from tests.fleet import BY_HAND, Fleet, facts, provenance
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.errors import ResultRefused, TunerError, UnstorableValue
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.agent.round_runner import RetryWhileHeld
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import CampaignRequest, RoundReport
from workers.measurement import Measurement, Outcome

LONG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb of a partition with a long name"
#: Text that one of the databases, the wire or a log can't take; and text that all can.
POISON = {"NUL": "a\0b", "half a pair": "a\ud800b", "100 kB": "x" * 100_000}
FINE = {
    "four bytes": "𝔾𝔼𝕄𝕄 🚀", "quotes": "'; DROP TABLE best; --", "lines": "a\nb\tc", "bidi": "\u202eabc", "empty": "",
}  # fmt: skip


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def fleet(store: Store) -> Fleet:
    return Fleet(store, BY_HAND)


def record(said: str, store: Store) -> str:
    study = store.begin_study(study_key())
    failed = replace(measured(FAMILY.config({}), outcome=Outcome.TIMEOUT), detail=said)
    store.record(study.id, failed, PROVENANCE)
    return store.measurements_of(study.id)[0].measurement.detail


def finish_study(said: str, store: Store) -> str:
    study = store.begin_study(study_key())
    store.finish_study(study.id, said)
    return store.begin_study(study_key()).stopped_because


def begin_study(said: str, store: Store) -> str:
    return store.begin_study(replace(study_key(), device=said)).key.device


def create_campaign(said: str, store: Store) -> str:
    return Fleet(store).campaigns.create(CampaignRequest(said, (PROBLEM,), ((DEVICE, "cuda"),)))[0].name


def use_a_key(said: str, store: Store) -> str:
    Fleet(store).campaigns.create(CampaignRequest("n", (PROBLEM,), ((DEVICE, "cuda"),)), said)
    return said


def register(said: str, store: Store) -> str:
    Fleet(store).workers.register(said, facts())
    return Fleet(store).workers.page(0, 1, False)[0].name


def fail_a_round(said: str, store: Store) -> str:
    fleet = Fleet(store, BY_HAND)
    campaign, hand = fleet.campaign([PROBLEM]), fleet.hand()
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, failure=said, hopeless=True)
    return results.problems(store, campaign.id, 0, 1)[0].reason.removeprefix(f"the device failed: {said}") and said


STORING: dict[str, tuple[Callable[[str, Store], str], bool]] = {
    "record": (record, True), "finish_study": (finish_study, True), "begin_study": (begin_study, False),
    "create_campaign": (create_campaign, False), "use_a_key": (use_a_key, False), "register": (register, False),
    "fail_a_round": (fail_a_round, True),
}  # fmt: skip


@pytest.mark.parametrize("call", STORING)
@pytest.mark.parametrize("name", [*POISON, *FINE])
def test_every_call_stores_it_or_refuses_it_alike(store: Store, call: str, name: str) -> None:
    (store_it, unlimited), said = STORING[call], (POISON | FINE)[name]
    before = store.counts()
    if name in FINE or (name == "100 kB" and unlimited):
        try:
            assert store_it(said, store) == said
        except (TunerError, SpaceError) as refusal:
            # An empty name, key or device may break a rule of its own, by that rule's name.
            if isinstance(refusal, UnstorableValue):
                raise
        return
    with pytest.raises((TunerError, SpaceError)) as refused:
        store_it(said, store)
    assert not str(refused.value).startswith("the PostgreSQL"), "as if the database were down"
    kept = {name: count for name, count in store.counts().items() if name in ("measurement", "campaign", "worker")}
    assert all(count <= before[name] + (name == "worker" or call == "fail_a_round") for name, count in kept.items())


def test_a_device_with_a_name_longer_than_a_channel_is_queued_and_tuned(fleet: Fleet) -> None:
    if not fleet.store.embedded:
        with fleet.store.transaction(writes=True) as session:
            queue = f"{LONG}/sm_90a/cuda"
            assert len(queue) > 63
            columns = "procrastinate_jobs (queue_name, task_name, queueing_lock)"
            session.execute(text(f"INSERT INTO {columns} VALUES (:queue, 'round', 'mig')"), {"queue": queue})
    fleet.workers.register("mig", replace(facts(), name=LONG))


def test_a_report_that_can_never_be_stored_is_refused_at_once_and_its_round_ends(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign([PROBLEM]), fleet.hand()
    task = hand.claimed()
    hand.begin(task)
    local = LocalCoordinator(fleet.store, BY_HAND)
    poisoned = RoundReport(
        (replace(measured(FAMILY.config({}), outcome=Outcome.TIMEOUT), detail="a\0b"),), provenance(), 1.0
    )
    retry = RetryWhileHeld(threading.Event())
    with pytest.raises(ResultRefused, match="NUL"):
        retry(lambda: local.finish(task, poisoned))
    retry(lambda: local.finish(task, RoundReport(busy_seconds=1.0, failure="the report was refused")))
    assert results.problems(fleet.store, campaign.id, 0, 1)[0].status in ("waiting", "parked")


def _report(lease: str, **change: Any) -> dict[str, Any]:  # noqa: ANN401
    failed: Measurement = measured(FAMILY.config({}), outcome=Outcome.TIMEOUT)
    entry = {"config": failed.config.key, "stage": "screen", "policy": failed.policy.value, "outcome": "timeout"}
    return {"lease": lease, "problem_key": PROBLEM.key, "measurements": [entry | change]}


@pytest.mark.parametrize("field", ["detail", "note", "build_digest", "config"])
@pytest.mark.parametrize("name", ["NUL", "half a pair"])
def test_the_edge_refuses_poison_by_the_field(store: Store, field: str, name: str) -> None:
    with TestClient(create_app(store), raise_server_exceptions=False) as http:
        body = json.dumps(_report("0" * 32, **{field: POISON[name]}))
        refused = http.post("/v1/rounds/1:finish", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"] == f"/measurements/0/{field}"
        for path, made in (
            ("/v1/workers", {"name": POISON[name], "facts": asdict(facts())}),
            ("/v1/workers", {"name": "w", "facts": asdict(facts()) | {"name": POISON[name]}}),
            ("/v1/campaigns", {"name": POISON[name], "problems": [{"m": 8, "n": 8, "k": 8}],
                               "devices": [{"name": DEVICE}]}),
        ):  # fmt: skip
            refused = http.post(path, content=json.dumps(made), headers={"Content-Type": "application/json"})
            assert refused.status_code == 422, refused.text
            assert refused.json()["errors"][0]["pointer"].endswith("name")
