"""The Python client has a method for every route of the service, except those by which workers report."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
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
        if request.url.path.endswith("/events"):
            return httpx2.Response(200, headers={"Content-Type": "text/event-stream"})
        return httpx2.Response(200, json=ANSWER | {"items": items})

    with Client("http://localhost", transport=httpx2.MockTransport(answer)) as client:
        for name, _ in inspect.getmembers(Client, inspect.isfunction):
            if not name.startswith("_") and name != "close":
                asked(getattr(client, name))
        for kind in ("swizzle", "boxes", "banks", "fragment", "scales", "descriptor", "instruction"):
            asked(client.layout, name=kind)
    with Store.open("sqlite://") as store:
        paths = create_app(store).openapi()["paths"]
    lacking = {
        route["operationId"]
        for path, routes in paths.items() for method, route in routes.items()
        if not any(verb == method.upper() and re.fullmatch(re.sub(r"\{\w+\}", "[^/:]+", path), where)
                   for verb, where in met)
    }  # fmt: skip
    assert lacking == OF_WORKERS


#: Parts of a request that a method has in other words: pages that it goes through, and what it makes or asks for.
IN_OTHER_WORDS = {"limit", "cursor", "format", "problem"}


def test_whatever_a_question_may_say_the_client_can_say() -> None:
    said: set[str] = set()

    def answer(request: httpx2.Request) -> httpx2.Response:
        said.update(request.url.params.keys(), json.loads(request.content) if request.content else ())
        return httpx2.Response(200, json=ANSWER)

    with Store.open("sqlite://") as store:
        document = create_app(store).openapi()
    lacking = []
    with Client("http://localhost", transport=httpx2.MockTransport(answer)) as client:
        layouts = {
            f"/v1/layouts/{name}": partial(client.layout, name)
            for name in ("swizzle", "boxes", "banks", "fragment", "scales", "descriptor", "instruction")
        }
        for path, method in layouts.items() | {
            ("/v1/best", client.best), ("/v1/explain", client.explain), ("/v1/rules/{rule}", client.rule),
            ("/v1/explain:neighbours", client.explain_neighbours), ("/v1/space", client.space),
            ("/v1/ladder", client.ladder), ("/v1/funnel", client.funnel), ("/v1/importance", client.importance),
            ("/v1/measurements:columns", client.measurement_columns), ("/v1/bests:columns", client.best_columns),
        }:  # fmt: skip
            for name in words_of(document, path) - IN_OTHER_WORDS:
                said.clear()
                given = {name: {"tile_m": 64} if name == "knobs" else 1}
                with suppress(TypeError):
                    asked(method, **given)
                lacking += [f"{path} {name}"] if name not in said else []
    assert lacking == []


def words_of(document: dict[str, Any], path: str) -> set[str]:
    """What a route's query and body may have."""
    (route,) = document["paths"][path].values()
    words = {each["name"] for each in route.get("parameters", ()) if each["in"] == "query"}
    if "requestBody" in route:
        name = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        words |= set(document["components"]["schemas"][name]["properties"])
    return words
