"""HEAD: a GET whose response ends after its headers (RFC 9110 §9.3.2), as health checks and downloads ask first."""

from __future__ import annotations

from anyio import CancelScope
from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a HEAD as `app` answers a GET, and stops it once the response begins: an event stream has no end."""
    answered = CancelScope()

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            answered.cancel()

    scope["method"] = "GET"
    try:
        with answered:
            await app(scope, receive, send_head)
    finally:
        # The log and the metrics tell them apart.
        scope["method"] = "HEAD"
