"""Routes whose bodies may be large: they are parsed in half the time, which blocks the event loop for less."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute


class _Request(Request):
    async def json(self) -> Any:  # noqa: ANN401  (a JSON value)
        body = await self.body()
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if "surrogate" not in str(error):
                raise
            # Python's parser accepts half a pair of surrogates; the field that has it is refused by its name.
            return json.loads(body)


class LargeBodyRoute(APIRoute):
    """A route with large bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_Request(request.scope, request.receive))

        return handle
