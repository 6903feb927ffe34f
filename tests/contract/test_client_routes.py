"""The Python client has a method for every route of the service, except those by which workers report."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from api.app import create_app
from gemmtune import Client
from tuner.evidence.store import Store

#: What workers say to the service, by `tuner.fleet.agent`.
OF_WORKERS = {
    "registerWorker", "heartbeat", "claimRound", "leave", "beginRound", "announceCandidates", "finishRound",
    "offerBuild",
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "items": [], "next": None, "source": "none", "config": None, "time_us": None, "tflops": None, "why": "",
    "legal": True,
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "m": 1, "n": 2, "k": 3, "knobs": {}, "problems": [{"m": 1, "n": 2, "k": 3}], "devices": ["NVIDIA H200"],
    "format": "csv", "problem": {"m": 1, "n": 2, "k": 3}, "change": 1,
}  # fmt: skip


def asked(method: Callable[..., Any], **more: Any) -> None:  # noqa: ANN401
    """Calls a method with values for what it requires."""
    empty = inspect.Parameter.empty
    needed = [
        each for each in inspect.signature(method).parameters.values()
        if each.default is empty and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]  # fmt: skip
    numbers = {each.name for each in needed if each.annotation == "int"}
    said = method(**{each.name: GIVEN.get(each.name, 1 if each.name in numbers else "word") for each in needed} | more)
    if isinstance(said, Iterator):
        list(said)


def test_every_route_has_a_method() -> None:
    met: set[tuple[str, str]] = set()

    def answer(request: httpx2.Request) -> httpx2.Response:
        met.add((request.method, request.url.path))
        items = [ANSWER] if request.url.path == "/v1/best:batch" else []
        return httpx2.Response(200, json=ANSWER | {"items": items})

    with Client("http://localhost", transport=httpx2.MockTransport(answer)) as client:
        for name, _ in inspect.getmembers(Client, inspect.isfunction):
            if not name.startswith("_") and name != "close":
                asked(getattr(client, name))
        for kind in ("swizzle", "boxes", "banks", "fragment", "scales", "descriptor", "instruction"):
            asked(client.layout, kind=kind)
    with Store.open("sqlite://") as store:
        paths = create_app(store).openapi()["paths"]
    lacking = {
        route["operationId"]
        for path, routes in paths.items() for method, route in routes.items()
        if not any(verb == method.upper() and re.fullmatch(re.sub(r"\{\w+\}", "[^/:]+", path), where)
                   for verb, where in met)
    }  # fmt: skip
    assert lacking == OF_WORKERS
