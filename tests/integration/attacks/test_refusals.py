"""Bodies that are refused, on every route that takes one: unread without a token, and with one never repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api import middleware
from api.access import AccessPolicy
from api.app import create_app
from tuner.evidence import tokens
from tuner.evidence.store import Store

#: What a refusal of the smallest body says, in bytes; a larger body's is never larger than the body.
LEAST_BYTES = 2_000
BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "an unknown field": b'{"a":1}',
    "unknown fields": b"{" + b",".join(b'"k%d":1' % place for place in range(2_000)) + b"}",
    "a long name of a field": json.dumps({"a" * 20_000: 1}).encode(),
    "ten names of fields": json.dumps({f"{place}" + "k" * 190: 1 for place in range(10)}).encode(),
    "names of control characters": json.dumps({"\x01" * 190 + f"{place}": 1 for place in range(10)}).encode(),
    "names of wide characters": json.dumps({"𝒦" * 50 + f"{place}": 1 for place in range(10)}).encode(),
    "nested": b"[" * 10_000 + b"]" * 10_000,
    "a long number": b"1" * 10_000,
    "long texts": json.dumps(dict.fromkeys(("name", "problem", "config", "lease", "digest"), "x" * 5_000)).encode(),
    "half a pair": b'{"name": "' + b"\\ud800" * 1_000 + b'", "worker": "\\u0000"}',
    "no UTF-8": b'{"name": "' + b"\xff" * 5_000 + b'"}',
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("refusals")
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        _, secret = tokens.make(store, "admin", ["admin"])
        app = create_app(store, AccessPolicy(tokens=True))
        app.state.follower.poll()
        yield TestClient(app, headers={"Authorization": f"Bearer {secret}"}, raise_server_exceptions=False)


def routes(http: TestClient) -> list[tuple[str, str]]:
    """Method and path of every route that takes a body."""
    found = http.app.state.routes  # type: ignore[attr-defined]
    return [
        (method, re.sub(r"\{\w+(:\w+)?\}", "1", route.path))
        for route in found if getattr(route, "body_field", None) for method in route.methods
    ]  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_the_refusal_of_a_bad_body_is_never_larger_than_the_body_on_any_route(http: TestClient, name: str) -> None:
    body = BODIES[name]
    assert len(routes(http)) > 10
    for method, path in routes(http):
        answer = http.request(method, path, content=body, headers={"Content-Type": "application/json"})
        if answer.status_code < 300:
            # An empty object may be all that a route needs.
            assert len(body) < LEAST_BYTES, path
            continue
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert len(answer.content) <= max(len(body), LEAST_BYTES), path
        assert answer.headers["content-type"] == "application/problem+json"


def test_nothing_of_a_body_is_read_without_a_token_on_any_route(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("the body was read")

    monkeypatch.setattr(middleware, "LimitedBody", read)
    for method, path in routes(http):
        for header in ("", "Bearer wrong", "Basic YTpi"):
            answer = http.request(method, path, content=b"{", headers={"Authorization": header})
            assert answer.status_code == 401, path


@pytest.mark.parametrize("name", ["Host", "Authorization", "Idempotency-Key"])
def test_a_header_that_says_who_asks_is_sent_once(http: TestClient, name: str) -> None:
    """What stands in front may read the first of two, and the service the last."""
    secret = http.headers["Authorization"]
    twice = {"Host": [("Host", "other"), ("Host", "testserver")],
             "Authorization": [("Authorization", "Bearer other"), ("Authorization", secret)],
             "Idempotency-Key": [("Idempotency-Key", "one"), ("Idempotency-Key", "other")]}  # fmt: skip
    answer = http.request("GET", "/v1/workers", headers=twice[name])
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/repeated-header")
    assert name.lower() in answer.json()["detail"]


@pytest.mark.parametrize(
    "asked",
    ["rounds?worker=0", "rounds?since=x", "builds?arch=sm_900000000000000", "measurements?stage=x", "measurements?m=0",
     "bests:columns?device=NVIDIA%20H200&policy=x", "failures?device=%00"],
)  # fmt: skip
def test_a_bad_parameter_is_refused_by_its_name(http: TestClient, asked: str) -> None:
    response = http.get(f"/v1/{asked}")
    assert response.status_code == 422
    name = asked.rpartition("=")[0].rpartition("?")[2].rpartition("&")[2]
    assert [each["pointer"] for each in response.json()["errors"]] == [name]
