"""Routes with JSON bodies, in which an object names each member once: of two the last would count, silently."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response

from api.thread_routes import ThreadRoute
from tuner.members import each_once


class _Request(Request):
    async def json(self) -> Any:  # noqa: ANN401  (a JSON value)
        return json.loads(await self.body(), object_pairs_hook=each_once)


class _LargeRequest(_Request):
    async def json(self) -> Any:  # noqa: ANN401  (a JSON value)
        try:
            return large_json(await self.body())
        except orjson.JSONDecodeError as error:
            if "surrogate" not in str(error):
                raise
            # Python's parser accepts half a pair of surrogates; the field that has it is refused by its name.
            return await super().json()


class JsonRoute(ThreadRoute):
    """A route with a JSON body."""

    request_class: type[Request] = _Request

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler, kind = super().get_route_handler(), self.request_class

        async def handle(request: Request) -> Response:
            return await handler(kind(request.scope, request.receive))

        return handle


class LargeJsonRoute(JsonRoute):
    """A route whose bodies may be large: they are parsed in half the time, which blocks the event loop for less."""

    request_class = _LargeRequest


def large_json(body: bytes) -> Any:  # noqa: ANN401  (a JSON value)
    """What a large body says.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
        ValueError: an object has a member twice.
    """
    found = orjson.loads(body)
    if _may_repeat(body, found):
        json.loads(body, object_pairs_hook=each_once)
    return found


def _may_repeat(body: bytes, found: Any) -> bool:  # noqa: ANN401  (a JSON value)
    """Whether an object may have a member twice: what was parsed then lacks a colon of the body. Telling for certain
    takes three times as long."""
    try:
        written = orjson.dumps(found)
    except orjson.JSONEncodeError:
        return False  # nested deeper than it writes, and than any body may be
    return b"\\u" in body or body.count(b":") != written.count(b":")
