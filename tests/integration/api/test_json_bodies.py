"""JSON bodies: a member that is given twice is refused, on every route; the last one would win silently."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from benchmarks.dashboard.types import document
from tests.integration.api.asking import problem_of

#: Every path that takes a JSON body.
PATHS = sorted(path for path, operations in document()["paths"].items() if "requestBody" in operations.get("post", {}))
JSON = {"Content-Type": "application/json"}
SQUARE = b'"m": 4096, "n": 4096, "k": 4096'


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b'{"x": 1, "x": 2}', b'{"a": [{"x": 1, "y": ":", "x": 2}]}'], ids=["flat", "nested"])
def test_a_member_given_twice_is_refused(http: TestClient, path: str, body: bytes) -> None:
    said = problem_of(http.post(re.sub(r"{\w+}", "1", path), content=body, headers=JSON), 400, "malformed-body")
    assert said["detail"] == "the body is not valid JSON: 'x' is given twice in one object"


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
