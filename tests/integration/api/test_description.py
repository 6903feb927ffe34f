"""GET /openapi.json: no other request waits while the description is made, and it is sent as it was rendered."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api import description
from tests.fleet import Fleet
from tests.integration.api.asking import problem_of
from tuner.evidence.store import Store


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/best?m=1&n=1&k=1&devise=L40S"])
def test_it_is_made_once_and_not_by_the_event_loop(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    make, makers = description._document, list[threading.Thread]()

    def noted(app: FastAPI) -> dict[str, object]:
        makers.append(threading.current_thread())
        return make(app)

    monkeypatch.setattr(description, "_document", noted)
    assert http.portal is not None
    loop = http.portal.call(threading.current_thread)
    for _ in range(2):
        assert http.get(path).status_code in (200, 422)
    assert len(makers) == 1
    assert makers != [loop]


def test_it_is_sent_compressed_and_not_again(http: TestClient) -> None:
    first = http.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    again = http.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_another_method_is_told_those_that_it_has(http: TestClient) -> None:
    assert http.delete("/openapi.json").headers["allow"] == "GET, HEAD"


def test_every_number_of_a_query_is_refused_if_it_is_not_written_in_digits(http: TestClient, store: Store) -> None:
    said = {
        "integer": 'give a whole number in digits, as in 4096, not "0_1"',
        "number": 'give a number in digits, as in 1.05, not "0_1"',
    }
    campaign, asked = Fleet(store).campaign(), Counter[str]()
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for each in methods.get("get", {}).get("parameters", ()):
            if each["in"] == "query" and (type_ := each["schema"].get("type")) in said:
                refused = http.get(path.format(device="h200", campaign_id=campaign.id), params={each["name"]: "0_1"})
                errors = problem_of(refused, 422, "malformed-request")["errors"]
                wrong = {one["pointer"]: one["detail"] for one in errors}
                assert wrong[each["name"]] == said[type_]
                asked[type_] += 1
    assert asked["integer"] > 50
    assert asked["number"] == 3
