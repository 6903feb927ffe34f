"""Whether the client of a request that waits for its turn still waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.types import Receive

from api.concurrency import Unwanted, Wanted
from api.http_errors import HttpError


@asynccontextmanager
async def watched(request: Request) -> AsyncIterator[Wanted]:
    """Watches a request's connection while the block runs; nothing in it may read the body.

    `Request.is_disconnected` asks granian for a message and does not wait for it, so it hears of no client that leaves.

    Raises:
        HttpError: 499, for the log: the block's call was left out because the client had left.
    """
    left = asyncio.Event()
    watching = asyncio.create_task(_watch(request.receive, left))
    try:
        yield lambda: not left.is_set()
    except Unwanted:
        detail = "the client left before it was this request's turn: wait for the answer, or ask for less at once"
        raise HttpError(499, "client-left", detail) from None
    finally:
        watching.cancel()
        # Whoever answers may ask for messages, too.
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(receive: Receive, left: asyncio.Event) -> None:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        message = await receive()
    # Of a request with a body that nobody reads, the rest stays in the socket.
    if message["type"] == "http.disconnect":
        left.set()
