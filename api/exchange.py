"""Exchange: one request, what is known of its caller, and the headers of its response."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import Message, Scope, Send

from api.auth import Caller
from api.bodies import LimitedBody, send_in_pieces
from api.http_errors import HttpError

#: Response headers, unless an endpoint sets its own.
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_JSON_HEADERS: Final = ((b"content-type", b"application/json"), *_HEADERS)


@dataclass(slots=True)
class Exchange:
    """One request and its response.

    Attributes:
        started: by `time.perf_counter`.
        headers: of the request; the last one of each name.
        caller: or why the request has no valid one.
        address: of the client.
        who: whom limits count the request for, as messages name it.
        status: of the response; 0 before it begins.
        body: of the request, once its sender may send one.
    """

    scope: Scope
    started: float
    headers: Mapping[bytes, bytes]
    caller: Caller | HttpError
    address: str
    who: str
    request_id: str
    status: int = 0
    body: LimitedBody | None = None

    def sending(self, send: Send) -> Send:
        """`send` for an application: it notes the status, adds our headers, and waits for slow clients."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                message["headers"] = _with_headers(message.get("headers", ()), self.request_id)
                await send(message)
            else:
                await send_in_pieces(send, message)

        return send_with_headers

    def answer(self, text: bytes) -> tuple[Message, Message]:
        """An answer from memory, as ASGI's two messages."""
        self.status = 200
        headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(text)), (b"x-request-id", self.request_id.encode())]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        return start, {"type": "http.response.body", "body": text}


def _with_headers(given: Collection[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in given}
    return [*given, *(pair for pair in _HEADERS if pair[0] not in names), (b"x-request-id", request_id.encode())]
