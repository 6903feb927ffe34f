"""Batches say what single questions say, and are refused with a pointer."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.batches import MOST_PROBLEMS, BatchOut
from tests.integration.api.asking import ASKED, problem_of
from tests.integration.api.snapshot.conftest import SHAPES
from tests.support import DEVICE


class TestBatch:
    def test_it_says_what_single_questions_say_in_their_order(self, http: TestClient) -> None:
        shapes = [*SHAPES, (5000, 5000, 5000), (400, 256, 256)]
        problems = [dict(zip("mnk", shape, strict=True)) for shape in shapes]
        response = http.post("/v1/best:batch", json={"problems": problems, "device": DEVICE})
        body = response.json()
        singles = [http.get("/v1/best", params=problem | {"device": DEVICE}).json() for problem in problems]
        assert body == {"items": singles, "unanswered": []}
        BatchOut.model_validate(body)

    @given(
        problems=st.lists(
            st.fixed_dictionaries(
                {"m": st.sampled_from([256, 5, "256", 256.0, True, None, 0, [256]]), "n": st.just(256)},
                optional={
                    "k": st.sampled_from([256, 512, "256"]),
                    "dtype": st.sampled_from(["bf16", "bf16,bf16,bf16,f32", 1]),
                    "layout": st.sampled_from(["nt", "x", None]), "batch": st.sampled_from([1, "1", True, None]),
                    "epilogue": st.sampled_from(["none", "gelu"]), "kind": st.sampled_from(["gemm", "other", [], None]),
                    "colour": st.just("red"),
                },
            ) | st.sampled_from([ASKED, ASKED, None, 1, "m", [], {}]),
            min_size=1, max_size=3,
        )
    )  # fmt: skip
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
    def test_it_says_what_it_says_after_validating_every_problem(self, http: TestClient, problems: list[Any]) -> None:
        body = {"problems": problems, "require": "measured"}
        short = http.post("/v1/best:batch", json=body)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("api.batches._plain_key", lambda given: None)
            long = http.post("/v1/best:batch", json=body)
        if short.status_code == 200:
            assert (long.status_code, long.content) == (200, short.content)
        else:
            shown, known = (answer.json() for answer in (short, long))
            assert [shown[name] for name in ("status", "detail")] == [known[name] for name in ("status", "detail")]

    def test_measured_problems_are_not_validated_one_by_one(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Which takes longer than all the rest of a large batch."""
        validated = list[int]()

        def none(given: list[Any], places: list[int], rest: object) -> list[Any]:
            validated.extend(places)
            return []

        monkeypatch.setattr("api.batches._validated", none)
        body = {"problems": [ASKED] * 700, "require": "measured"}
        assert http.post("/v1/best:batch", json=body).json()["unanswered"] == validated == []

    def test_only_measured_when_that_is_required(self, http: TestClient) -> None:
        problems = [{"m": 7, "n": 7, "k": 8}, ASKED]
        body = http.post("/v1/best:batch", json={"problems": problems, "require": "measured"}).json()
        assert body["unanswered"] == [0]
        assert [item and item["source"] for item in body["items"]] == [None, "measured"]

    def test_under_a_policy_it_says_what_single_questions_say_while_there_is_time(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problems = [ASKED, {"m": 7, "n": 7, "k": 8}]
        body: dict[str, Any] = {"problems": problems, "policy": "rounds"}
        singles = [http.get("/v1/best", params=problem | {"policy": "rounds"}).json() for problem in problems]
        assert http.post("/v1/best:batch", json=body).json() == {"items": singles, "unanswered": []}
        for policy, sources in (("burst", ["measured", None]), ("rounds", [None, None])):
            required = http.post("/v1/best:batch", json=body | {"require": "measured", "policy": policy}).json()
            assert [item and item["source"] for item in required["items"]] == sources
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", -1.0)
        assert http.post("/v1/best:batch", json=body).json()["unanswered"] == [0, 1]

    def test_computing_ends_and_goes_on_when_asked_again(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", -1.0)
        problems = [{"m": 9000 + 8 * place, "n": 9000, "k": 9000} for place in range(3)]
        assert http.post("/v1/best:batch", json={"problems": problems}).json()["unanswered"] == [0, 1, 2]
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", 60.0)
        assert http.post("/v1/best:batch", json={"problems": problems}).json()["unanswered"] == []

    @pytest.mark.parametrize(
        ("body", "kind", "pointer"),
        [
            ({"problems": []}, "malformed-request", "/problems"),
            ({"problems": [ASKED] * (MOST_PROBLEMS + 1)}, "malformed-request", "/problems"),
            ({"problems": [ASKED, ASKED | {"m": 0}]}, "malformed-request", "/problems/1/m"),
            ({"problems": [ASKED] * 700 + [ASKED | {"m": 0}]}, "malformed-request", "/problems/700/m"),
            ({"problems": [ASKED | {"m": "256"}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [ASKED | {"m": True}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [ASKED | {"shape": 1}]}, "malformed-request", "/problems/0/shape"),
            ({"problems": [ASKED, ASKED | {"dtype": "bf17"}]}, "bad-input", "/problems/1"),
            ({"problems": [ASKED], "devise": "x"}, "malformed-request", "/devise"),
            ({"problems": [ASKED], "m/n~k": 1}, "malformed-request", "/m~1n~0k"),
            ({"problems": [ASKED], "device": "a\x00b"}, "malformed-request", "/device"),
            ({"problems": [ASKED], "policy": "cold_graph"}, "malformed-request", "/policy"),
            ([], "malformed-request", "/"),
        ],
    )
    def test_bad_batches_are_refused_with_a_pointer(
        self, http: TestClient, body: object, kind: str, pointer: str
    ) -> None:
        document = problem_of(http.post("/v1/best:batch", json=body), 422, kind)
        assert document["errors"][0]["pointer"] == pointer

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 5000])
    def test_what_is_no_json_is_refused(self, http: TestClient, content: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        problem_of(http.post("/v1/best:batch", content=content, headers=headers), 400, "malformed-body")

    def test_a_number_that_json_lacks_is_refused(self, http: TestClient) -> None:
        headers = {"Content-Type": "application/json"}
        said = http.post("/v1/best:batch", content=b'{"problems": NaN}', headers=headers)
        problem_of(said, 422, "malformed-request")

    def test_another_content_type_is_refused(self, http: TestClient) -> None:
        response = http.post("/v1/best:batch", content=b"{}", headers={"Content-Type": "text/plain"})
        problem_of(response, 415, "not-json")
