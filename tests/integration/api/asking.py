"""Shared by the service's tests: a question, and checks of refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI

from api.server import listen

ASKED = {"m": 256, "n": 256, "k": 256}


def problem_of(response: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of a refusal, after checks that every one must pass."""
    document: dict[str, Any] = response.json()
    assert response.status_code == status, document
    assert response.headers["content-type"] == "application/problem+json"
    assert document["type"] == f"/problems/{kind}"
    assert document["instance"] == response.headers["x-request-id"]
    assert len(document["detail"]) > 20
    return document


@contextmanager
def serving(app: FastAPI, log_level: str = "error", graceful_seconds: int | None = None) -> Iterator[str]:
    """A real server on a free port; its URL.

    Args:
        graceful_seconds: how long it waits at its end for answers under way; None for as long as they take.
    """
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level=log_level, timeout_graceful_shutdown=graceful_seconds)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
