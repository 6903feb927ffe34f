"""Routes whose bodies may be large: they are parsed in half the time, during which the event loop answers nobody."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute


class _Request(Request):
    async def json(self) -> Any:  # noqa: ANN401  (a JSON value)
        return orjson.loads(await self.body())


class LargeBodyRoute(APIRoute):
    """A route with large bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_Request(request.scope, request.receive))

        return handle
