"""Endpoints that run in threads: a caller with many connections leaves the shared threads to others."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from api.access import AccessPolicy
from api.app import create_app
from api.concurrency import CALLER_THREADS
from api.thread_routes import ThreadRoute
from tests.fleet import eventually
from tests.integration.api.asking import ASKED
from tuner.evidence import tokens
from tuner.evidence.store import Store


def test_a_caller_has_a_few_threads_and_another_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    page, begun, go = Store.page, list[int](), threading.Event()

    def slow(*given: object, **named: object) -> object:
        begun.append(1)
        go.wait(60)
        return page(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "page", slow)
    one, other = ({"Authorization": f"Bearer {tokens.make(store, name, ['read'])[1]}"} for name in ("one", "other"))
    many = CALLER_THREADS + 3
    with TestClient(create_app(store, AccessPolicy(tokens=True))) as http, ThreadPoolExecutor(many + 1) as asking:
        asked = [asking.submit(http.get, "/v1/measurements", headers=one) for _ in range(many)]
        try:
            eventually(lambda: len(begun) >= CALLER_THREADS)
            # What needs no thread is answered meanwhile.
            assert http.get("/v1/caller", headers=one).status_code == 200
            assert len(begun) == CALLER_THREADS
            asked.append(asking.submit(http.get, "/v1/measurements", headers=other))
            eventually(lambda: len(begun) > CALLER_THREADS)
        finally:
            go.set()
        assert [each.result().status_code for each in asked] == [200] * (many + 1)
    assert len(begun) == many + 1


@pytest.mark.parametrize("path", ["space", "funnel", "importance", "ladder", "best"])
def test_which_device_a_starting_service_has_is_not_read_on_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    devices, on_loop = Store.devices, list[bool]()

    def noted(store: Store) -> list[tuple[str, str]]:
        on_loop.append(asyncio._get_running_loop() is not None)
        return devices(store)

    monkeypatch.setattr(Store, "devices", noted)
    idle = TestClient(create_app(store))  # without its start, nothing is read
    assert idle.get(f"/v1/{path}", params=ASKED).status_code in (200, 404, 503)
    assert on_loop
    assert not any(on_loop)


def test_no_endpoint_takes_threads_without_that_limit(store: Store) -> None:
    routes = create_app(store).state.routes
    threaded = [route for route in routes if not inspect.iscoroutinefunction(route.endpoint)
                and not inspect.isasyncgenfunction(route.endpoint)]  # fmt: skip
    assert len(threaded) > 20
    assert [route.path for route in threaded if not isinstance(route, ThreadRoute)] == []
