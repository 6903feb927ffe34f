"""A stream that ends, wherever its client's leaving meets it, leaves no listener for which the store is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from fastapi.testclient import TestClient

from tests.fleet import eventually


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def head_of_a_stream(http: TestClient) -> None:
    asked = http.head("/v1/events?seconds=3600")
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["content-type"].startswith("text/event-stream")


def none_are_open(http: TestClient) -> bool:
    state = http.app.state  # type: ignore[attr-defined]
    return not state.streams._open and not state.hub._listeners


def test_a_head_ends_its_stream(http: TestClient) -> None:
    head_of_a_stream(http)
    # The answer is here before the stream has ended.
    eventually(lambda: none_are_open(http))


@pytest.mark.usefixtures("no_collection")
def test_a_stream_ends_while_it_hands_over_an_event(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    send = MemoryObjectSendStream[Any].send

    async def slow_send(self: MemoryObjectSendStream[Any], item: object) -> None:
        if isinstance(item, bytes):
            await anyio.sleep(1.0)
        await send(self, item)

    monkeypatch.setattr(MemoryObjectSendStream, "send", slow_send)
    for _ in range(4):
        head_of_a_stream(http)
    eventually(lambda: none_are_open(http))
