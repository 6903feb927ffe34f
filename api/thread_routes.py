"""Routes whose endpoints run in threads that all requests share: a caller has a few of them at once.

The pool serves whoever comes first: a caller with a hundred connections would hold all of it, and requests of others
would wait until most of the hundred are answered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.concurrency import CallerSlots


class ThreadRoute(APIRoute):
    """A route that waits for one of its caller's threads, if its endpoint needs one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if inspect.iscoroutinefunction(self.endpoint) or inspect.isasyncgenfunction(self.endpoint):
            return handler

        async def handle(request: Request) -> Response:
            slots: CallerSlots = request.app.state.thread_slots
            async with slots.of(request.state.who):
                return await handler(request)

        return handle
