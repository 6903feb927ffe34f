"""A worker is its credential: another token meets 404 on every route, as for a worker or round that does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.access import AccessPolicy
from api.app import create_app
from tests.fleet import PROBLEMS, Fleet, facts, provenance, time_of
from tests.support import FAMILY, measured
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import measurement_document

CONFIGS = [FAMILY.config({"tile_n": n}) for n in (64, 128)]


class Node:
    """A client with a `work` token of its own, and the worker that it registered."""

    def __init__(self, store: Store, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.token, secret = tokens.make(store, name, ["work"])
        app = create_app(store, AccessPolicy(tokens=True))
        self.http = TestClient(app, headers={"Authorization": f"Bearer {secret}"}, raise_server_exceptions=False)
        welcome = self.post("/v1/workers", {"name": name, "facts": asdict(facts(number))})
        self.worker = int(welcome.json()["worker_id"])

    def post(self, path: str, body: object = None) -> httpx2.Response:
        return self.http.post(path, json=body if body is not None else {})

    def claim(self) -> dict[str, Any]:
        return dict(self.post(f"/v1/workers/{self.worker}:claim").json())

    def begin(self, task: dict[str, Any]) -> httpx2.Response:
        said = {"lease": task["lease"], "provenance": asdict(provenance(self.number))}
        return self.post(f"/v1/rounds/{task['round_id']}:begin", said)

    def finish(self, task: dict[str, Any], **change: Any) -> httpx2.Response:  # noqa: ANN401
        taken = [measurement_document(measured(config, time_of(config), PROBLEMS[0])) for config in CONFIGS]
        body = {"lease": task["lease"], "problem_key": task["problem_key"], "measurements": taken,
                "provenance": asdict(provenance(self.number)), "busy_seconds": 0.1}  # fmt: skip
        return self.post(f"/v1/rounds/{task['round_id']}:finish", body | change)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        Fleet(opened).campaign(PROBLEMS[:1])
        yield opened


def refusal(response: httpx2.Response) -> tuple[int, str, str]:
    document = response.json()
    return response.status_code, document["type"], document["detail"]


def everything(store: Store) -> list[list[tuple[object, ...]]]:
    """All rows that a worker's calls could change."""
    with store.transaction() as session:
        return [
            [tuple(row) for row in session.execute(text(f"SELECT * FROM {table} ORDER BY id"))]
            for table in ("worker", "round", "campaign_problem", "measurement", "best")
        ]


def attacks(worker: int, task: dict[str, Any]) -> dict[str, object]:
    """A valid body for every route that names a worker or a round."""
    rounds, under = f"/v1/rounds/{task['round_id']}", {"lease": task["lease"]}
    taken = [measurement_document(measured(CONFIGS[0], 1.0, PROBLEMS[0]))]
    return {
        f"/v1/workers/{worker}:claim": {},
        f"/v1/workers/{worker}:heartbeat": {"round_id": task["round_id"]},
        f"/v1/workers/{worker}:leave": {},
        f"{rounds}:begin": under | {"provenance": asdict(provenance())},
        f"{rounds}:announce": under | {"stage": "screen", "configs": [CONFIGS[0].key]},
        f"{rounds}:finish": under | {"hopeless": True, "failure": "parked by a stranger"},
        f"{rounds}:finish?": under | {"problem_key": task["problem_key"], "measurements": taken,
                                      "provenance": asdict(provenance()), "ended": "forged"},
    }  # fmt: skip


def test_a_foreign_token_can_not_touch_a_worker_or_its_round(store: Store) -> None:
    owner, thief = Node(store, "owner", 0), Node(store, "thief", 1)
    task = owner.claim()
    assert owner.begin(task).status_code == 200
    before = everything(store)
    absent = attacks(999, {"round_id": 999, "lease": task["lease"], "problem_key": task["problem_key"]})
    for (path, body), (nowhere, _) in zip(attacks(owner.worker, task).items(), absent.items(), strict=True):
        status, kind, detail = refusal(thief.post(path, body))
        assert (status, kind.rpartition("-")[0]) == (404, "/problems/unknown"), path
        # The same answer, but for the number that was asked for.
        same = refusal(thief.post(nowhere, body))
        assert same == (status, kind, detail.replace(f" {owner.worker}:", " 999:")), path
    assert thief.post(f"/v1/workers/{owner.worker}:drain").status_code == 403
    assert everything(store) == before
    assert owner.post(f"/v1/workers/{owner.worker}:heartbeat", {"round_id": task["round_id"]}).json()["stop"] is False
    assert owner.finish(task).status_code == 204


def test_a_measurement_keeps_its_worker_its_round_and_its_token(store: Store) -> None:
    owner = Node(store, "owner", 0)
    task = owner.claim()
    owner.begin(task)
    assert owner.finish(task).status_code == 204
    with store.transaction() as session:
        authors = session.execute(text("SELECT worker_id, round_id, token_id FROM measurement")).all()
    assert [tuple(row) for row in authors] == 2 * [(owner.worker, task["round_id"], owner.token.id)]
    shown = TestClient(create_app(store)).get("/v1/measurements").json()["items"][0]
    assert (shown["worker_id"], shown["round_id"], shown["token_id"], shown["revoked"]) == (
        owner.worker, task["round_id"], owner.token.id, False
    )  # fmt: skip
    stored = store.page()[0]
    assert asdict(stored.author) == {
        "worker_id": owner.worker, "round_id": task["round_id"], "token_id": owner.token.id
    }  # fmt: skip


def test_the_same_report_is_welcome_again_and_another_is_refused(store: Store) -> None:
    owner = Node(store, "owner", 0)
    task = owner.claim()
    owner.begin(task)
    assert [owner.finish(task).status_code for _ in range(3)] == [204, 204, 204]
    late = owner.finish(task, measurements=[], busy_seconds=0.2)
    assert refusal(late)[:2] == (409, "/problems/lease-lost")
    assert store.counts()["measurement"] == 2
    # Gone, and still the answer to its own report is the same.
    assert owner.post(f"/v1/workers/{owner.worker}:leave").status_code == 204
    assert owner.finish(task).status_code == 204
    assert owner.finish(task, ended="late").status_code == 409


def test_without_tokens_everybody_is_one_author_and_no_token_is_it(store: Store) -> None:
    http = TestClient(create_app(store))
    worker = http.post("/v1/workers", json={"name": "node", "facts": asdict(facts())}).json()["worker_id"]
    assert http.post(f"/v1/workers/{worker}:claim").status_code == 200
    thief = Node(store, "thief", 1)
    assert thief.post(f"/v1/workers/{worker}:claim").status_code == 404
