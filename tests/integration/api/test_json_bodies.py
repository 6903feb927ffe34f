"""JSON bodies: a member that is given twice is refused, on every route; the last one would win silently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from benchmarks.dashboard.types import document
from tests.integration.api.asking import ASKED, problem_of
from tests.support import FACTS, FAMILY, PROVENANCE, measured
from tuner.fleet.agent.coordinator import measurement_document

#: Every path that takes a JSON body.
PATHS = sorted(path for path, operations in document()["paths"].items() if "requestBody" in operations.get("post", {}))
JSON = {"Content-Type": "application/json"}
SQUARE = b'"m": 4096, "n": 4096, "k": 4096'
LEASE = "0" * 32
#: Bodies with every number and boolean that their paths take, by path.
NUMBERS: dict[str, dict[str, Any]] = {
    "/v1/workers": {"name": "node-1", "facts": asdict(FACTS)},
    "/v1/workers/1:heartbeat": {"round_id": 1, "progress": {"stage": "screen", "tried": 4, "best_us": 3.5}},
    "/v1/rounds/1:begin": {"lease": LEASE, "provenance": asdict(PROVENANCE)},
    "/v1/rounds/1:finish": {
        "lease": LEASE, "provenance": asdict(PROVENANCE), "busy_seconds": 0.5, "hopeless": False, "handed_back": True,
        "measurements": [
            measurement_document(replace(measured(FAMILY.config({}), samples=2), product_joules=1.5))
        ],
    },
    "/v1/builds": {
        "digest": "0" * 64, "problem": "x", "config": "y", "arch": "sm_90a", "nvrtc": "13.0", "registers": 3,
        "warnings": [], "seconds": 0.5, "cubin": "AAAA",
    },
    "/v1/best:rollback": {"problem": ASKED, "device": "NVIDIA H200", "change": 1},
    "/v1/best:batch": {"problems": [ASKED]},
    "/v1/campaigns": {
        "name": "x", "problems": [ASKED | {"count": 2}], "devices": [{"name": "NVIDIA H200"}], "priority": 0,
        "budget": {"candidates": 20, "rounds": 11, "target": 0.5, "gpu_seconds": 9.5},
    },
}  # fmt: skip


def numbers_of(body: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401  (a JSON value)
    """The path of every number and boolean in a body."""
    if isinstance(body, int | float):
        yield path
    elif isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            yield from numbers_of(value, *path, key)


def changed(body: dict[str, Any], path: tuple[str | int, ...], value: object) -> bytes:
    """The body with another value at one place, as JSON."""
    other = place = json.loads(json.dumps(body))
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(other).encode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b'{"x": 1, "x": 2}', b'{"a": [{"x": 1, "y": ":", "x": 2}]}'], ids=["flat", "nested"])
def test_a_member_given_twice_is_refused(http: TestClient, path: str, body: bytes) -> None:
    said = problem_of(http.post(re.sub(r"{\w+}", "1", path), content=body, headers=JSON), 400, "malformed-body")
    assert said["detail"] == "the body is not valid JSON: 'x' is given twice in one object"


@pytest.mark.parametrize("path", NUMBERS)
def test_numbers_and_booleans_are_those_of_json(http: TestClient, path: str) -> None:
    body = NUMBERS[path]
    given = http.post(path, json=body)
    assert given.status_code < 300 or given.json()["type"] != "/problems/malformed-request", given.text
    for place in numbers_of(body):
        # Python takes each of them for a number, or for a boolean.
        for value in ("1_0", "10", "yes", 1 if place[-1] in ("hopeless", "handed_back") else True):
            answer = http.post(path, content=changed(body, place, value), headers=JSON)
            said = problem_of(answer, 422, "malformed-request")
            assert said["errors"][0]["pointer"].startswith("/" + "/".join(map(str, place))), (place, value)


@pytest.mark.parametrize("place", ["verification/worst_ratio", "product_joules", "samples_us/0", "clocks/power_w"])
def test_a_number_of_a_report_is_finite(http: TestClient, place: str) -> None:
    path = ("measurements", 0, *(int(name) if name.isdigit() else name for name in place.split("/")))
    for value in (float("nan"), float("inf"), -float("inf")):
        answer = http.post("/v1/rounds/1:finish", content=changed(NUMBERS["/v1/rounds/1:finish"], path, value),
                           headers=JSON)  # fmt: skip
        assert place in problem_of(answer, 422, "malformed-request")["detail"]


@pytest.mark.parametrize("member", [b'"m": 8', rb'"\u006d": 8'], ids=["plain", "escaped"])
def test_a_batch_answers_no_problem_that_is_two(http: TestClient, member: bytes) -> None:
    problems = b",".join([b"{%s}" % SQUARE, b"{%s, %s}" % (SQUARE, member)])
    asked = http.post("/v1/best:batch", content=b'{"problems": [%s]}' % problems, headers=JSON)
    assert "'m' is given twice" in problem_of(asked, 400, "malformed-body")["detail"]


def test_colons_within_texts_repeat_nothing(http: TestClient) -> None:
    problem = b'{%s, "dtype": "bf16"}' % SQUARE
    batch = b'{"problems": [%s], "device": "NVIDIA\\u0020H200"}' % problem
    campaign = b'{"name": "a:b", "problems": [%s], "devices": [{"name": "NVIDIA H200"}]}' % problem
    bodies = {"/v1/best:batch": batch, "/v1/campaigns:estimate": campaign}
    answers = [http.post(path, content=body, headers=JSON) for path, body in bodies.items()]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text[:200] for answer in answers]


@pytest.mark.parametrize("depth", [300, 900])
def test_what_is_nested_too_deeply_is_refused_as_ever(http: TestClient, depth: int) -> None:
    body = b'{"problems": %s"\\u003a"%s}' % (b"[" * depth, b"]" * depth)
    for path in ("/v1/best:batch", "/v1/campaigns"):
        assert http.post(path, content=body, headers=JSON).status_code in (400, 422)
