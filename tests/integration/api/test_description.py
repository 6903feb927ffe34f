"""GET /openapi.json: no other request waits while the description is made, and it is sent as it was rendered."""

from __future__ import annotations

import threading

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api import description


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
