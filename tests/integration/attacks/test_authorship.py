"""A worker is its credential: another token meets 404 on every route, as for a worker or round that does not exist."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.access import AccessPolicy
from api.app import create_app
from tests.fleet import PROBLEMS, Fleet, facts, provenance, time_of
from tests.support import FAMILY, measured
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.evidence.tokens import Scope
from tuner.fleet.agent.coordinator import measurement_document

CONFIGS = [FAMILY.config({"tile_n": n}) for n in (64, 128)]


class Node:
    """A client with a token of its own, and the worker that it registered."""

    def __init__(self, store: Store, name: str, number: int, scope: str = "work") -> None:
        self.name, self.number = name, number
        self.token, secret = tokens.make(store, name, [scope])
        app = create_app(store, AccessPolicy(tokens=True))
        self.http = TestClient(app, headers={"Authorization": f"Bearer {secret}"}, raise_server_exceptions=False)
        welcome = self.post("/v1/workers", {"name": name, "facts": asdict(facts(number))})
        self.worker = int(welcome.json()["worker_id"])

    def post(self, path: str, body: object = None) -> httpx2.Response:
        return self.http.post(path, json=body if body is not None else {})

    def claim(self) -> dict[str, Any]:
        return dict(self.post(f"/v1/workers/{self.worker}:claim").json())

    def begin(self, task: dict[str, Any], **change: str) -> httpx2.Response:
        said = {"lease": task["lease"], "provenance": asdict(provenance(self.number)) | change}
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


def attacks(worker: int, task: dict[str, Any]) -> dict[str, list[tuple[str, dict[str, object]]]]:
    """For each route that names a worker or a round and needs scope `work`: its path here, and valid bodies."""
    workers, rounds = "/v1/workers/{worker_id:int}", "/v1/rounds/{round_id:int}"
    under, told = {"lease": task["lease"]}, asdict(provenance())
    taken = [measurement_document(measured(CONFIGS[0], 1.0, PROBLEMS[0]))]
    report = {"problem_key": task["problem_key"], "measurements": taken, "provenance": told, "ended": "forged"}
    bodies: dict[str, list[dict[str, object]]] = {
        f"{workers}:claim": [{}],
        f"{workers}:heartbeat": [{"round_id": task["round_id"]}, {}],
        f"{workers}:leave": [{}],
        f"{rounds}:begin": [under | {"provenance": told}],
        f"{rounds}:announce": [under | {"stage": "screen", "configs": [CONFIGS[0].key]}],
        f"{rounds}:finish": [
            under | report, under | {"hopeless": True, "failure": "parked by a stranger"}, under | {"handed_back": True}
        ],
    }  # fmt: skip

    def here(route: str) -> str:
        return route.replace("{worker_id:int}", str(worker)).replace("{round_id:int}", str(task["round_id"]))

    return {route: [(here(route), body) for body in found] for route, found in bodies.items()}


def scopes_of(route: APIRoute) -> set[Scope]:
    """The scopes that a route requires; empty if it answers everybody."""
    return {
        Scope(inspect.getclosurevars(dependency.call).nonlocals["needed"])
        for dependency in route.dependant.dependencies
        if dependency.call is not None and dependency.call.__qualname__.startswith("require.<locals>")
    }


def route_table(store: Store) -> dict[tuple[str, str], set[Scope]]:
    """The scopes of every route of the service, by method and path."""
    routes = create_app(store).state.routes
    found = [route for route in routes if isinstance(route, APIRoute)]
    assert len(found) == len(routes)
    return {(method, route.path): scopes_of(route) for route in found for method in route.methods}


def test_there_is_an_attack_on_every_route_of_a_worker_or_a_round(store: Store) -> None:
    owned = {path for (_, path), scope in route_table(store).items() if Scope.WORK in scope and "_id:int}" in path}
    assert owned == attacks(1, {"round_id": 1, "lease": "", "problem_key": ""}).keys()


@pytest.mark.parametrize("scope", ["work", "admin"])
def test_a_foreign_token_can_not_touch_a_worker_or_its_round(store: Store, scope: str) -> None:
    owner, thief = Node(store, "owner", 0), Node(store, "thief", 1, scope)
    task = owner.claim()
    assert owner.begin(task).status_code == 200
    before = everything(store)
    absent = attacks(999, {"round_id": 999, "lease": task["lease"], "problem_key": task["problem_key"]})
    for route, found in attacks(owner.worker, task).items():
        for (path, body), (nowhere, _) in zip(found, absent[route], strict=True):
            refused, same = thief.post(path, body), thief.post(nowhere, body)
            status, kind, detail = refusal(refused)
            assert (status, kind.rpartition("-")[0]) == (404, "/problems/unknown"), path
            # The same answer, but for the number that was asked for.
            assert refusal(same) == (status, kind, re.sub(r"\b1\b", "999", detail)), path
            assert refused.headers.keys() == same.headers.keys()
    if scope == "work":
        assert thief.post(f"/v1/workers/{owner.worker}:drain").status_code == 403
    assert everything(store) == before
    assert owner.post(f"/v1/workers/{owner.worker}:heartbeat", {"round_id": task["round_id"]}).json()["stop"] is False
    assert owner.finish(task).status_code == 204


def test_a_worker_tells_no_progress_of_a_round_that_it_does_not_hold(store: Store) -> None:
    owner, thief = Node(store, "owner", 0), Node(store, "thief", 1)
    task = owner.claim()
    progress = {"stage": "screen", "tried": 3, "best_us": 20.0}
    forged = {"round_id": task["round_id"], "progress": progress | {"tried": 999}}
    shown = owner.http.app.state.shown.progress  # type: ignore[attr-defined]
    for node in (owner, thief):
        node.http.app.state.shown.progress = shown  # type: ignore[attr-defined]
    told = {"round_id": task["round_id"], "progress": progress}
    assert owner.post(f"/v1/workers/{owner.worker}:heartbeat", told).json()["stop"] is False
    assert thief.post(f"/v1/workers/{thief.worker}:heartbeat", forged).json()["stop"] is True
    assert shown.get(task["round_id"]).tried == 3


def test_only_probes_the_description_and_files_of_the_page_answer_without_a_token(store: Store) -> None:
    http = TestClient(create_app(store, AccessPolicy(tokens=True)), raise_server_exceptions=False)
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    unscoped = [route for route in http.app.state.routes if not scopes_of(route)]  # type: ignore[attr-defined]
    assert {method for route in unscoped for method in route.methods} <= {"GET", "HEAD"}
    answering = {
        route.endpoint.__module__ for route in unscoped
        if http.get(re.sub(r"\{\w+(:\w+)?\}", "1", route.path)).status_code != 401
    }  # fmt: skip
    assert answering <= {"api.health", "api.dashboard.routes", "api.description"}


def test_every_route_refuses_callers_without_its_scope(store: Store) -> None:
    http = TestClient(create_app(store, AccessPolicy(tokens=True)), raise_server_exceptions=False)
    table, secrets = route_table(store), {scope: tokens.make(store, scope.value, [scope.value])[1] for scope in Scope}
    http.app.state.token_cache.load(store)  # type: ignore[attr-defined]
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    for (method, path), needed in table.items():
        if not needed:
            continue
        here = re.sub(r"\{\w+(:\w+)?\}", "1", path)
        assert refusal(http.request(method, here))[:2] == (401, "/problems/token-needed")
        for scope, secret in secrets.items():
            if scope is not Scope.ADMIN and needed != {scope}:
                answer = http.request(method, here, json={}, headers={"Authorization": f"Bearer {secret}"})
                assert refusal(answer)[:2] == (403, "/problems/scope-needed"), (method, here, scope)


def test_a_slot_that_another_token_holds_is_refused_without_naming_its_worker(store: Store) -> None:
    owner = Node(store, "owner-of-the-card", 0)
    thief = Node(store, "thief", 1)
    taken = thief.post("/v1/workers", {"name": "thief", "facts": asdict(facts(0))})
    status, kind, detail = refusal(taken)
    assert (status, kind) == (409, "/problems/slot-taken")
    assert "owner-of-the-card" not in detail
    assert "another token" in detail
    own = owner.post("/v1/workers", {"name": "again", "facts": asdict(facts(0))})
    assert "owner-of-the-card" in refusal(own)[2]


def test_a_report_that_comes_after_the_round_was_lost_is_refused(store: Store) -> None:
    fleet, owner = Fleet(store), Node(store, "owner", 0)
    task = owner.claim()
    owner.begin(task)
    fleet.fall_silent()
    fleet.sweeper.sweep()
    assert refusal(owner.finish(task))[:2] == (409, "/problems/lease-lost")
    assert refusal(owner.begin(task))[:2] == (409, "/problems/lease-lost")
    assert store.counts()["measurement"] == 0
    again = Node(store, "second", 1).claim()
    assert again["problem_key"] == task["problem_key"]
    assert again["lease"] != task["lease"]
    assert refusal(owner.finish(task, ended="late"))[:2] == (409, "/problems/lease-lost")


def test_a_round_begins_with_one_program(store: Store) -> None:
    owner = Node(store, "owner", 0)
    task = owner.claim()
    assert owner.begin(task).status_code == owner.begin(task).status_code == 200
    for digest in ("a" * 64, "b" * 64):
        assert "began with another program" in refusal(owner.begin(task, kernel_source_digest=digest))[2]
    assert store.counts()["study"] == 1
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
