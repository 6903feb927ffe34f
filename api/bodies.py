"""Bodies of requests and responses: their size, their time, and the memory that they take together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from starlette.types import Message, Receive, Send

from api.http_errors import HttpError

#: Limit for paths that are not in `BODY_BYTES`.
MOST_BODY_BYTES: Final = 2**20
#: Paths that accept more: 10,000 problems with every field spelled out, or a cubin in base64.
BODY_BYTES: Final[Mapping[str, int]] = {
    path: 4 * 2**20 for path in ("/v1/best:batch", "/v1/builds", "/v1/campaigns", "/v1/campaigns:estimate")
}
#: Parsing takes time for each value of a JSON body; 10,000 problems have a third of this.
MOST_VALUES: Final = 400_000
#: Most parts that a body may arrive in: each costs as much time as many bytes. A network makes parts of a few hundred
#: bytes or more, whatever the chunks of the sender.
MOST_PARTS: Final = 512
_LEAST_PART_BYTES: Final = 256
#: A body has to arrive within this time.
BODY_SECONDS: Final = 20.0
#: Bodies of one caller that have not arrived completely.
MOST_ARRIVING: Final = 64
#: Beyond this many, each of them rests between two parts.
_UNPACED_BODIES: Final = 8
_PACE_SECONDS: Final = 0.02
#: Bodies of requests in progress: of one caller, and of all.
MOST_CALLER_BYTES: Final = 16 * 2**20
MOST_HELD_BYTES: Final = 64 * 2**20
#: Parsing a larger body would be noticed by other requests.
_LARGE_BYTES: Final = 32 * 1024
#: After such a body the next one waits this many times as long as it took.
_REST: Final = 3.0
_BARRED_SECONDS: Final = 1.0
#: A client has to read this much of a response within this time, or its connection is closed.
_PIECE_BYTES: Final = 256 * 1024
WRITE_SECONDS: Final = 20.0


#: Bytes read of a refused body, so that its sender reads the refusal and not a reset connection.
_DISCARDED_BYTES: Final = 4 * 2**20
#: A smaller part counts as this much: reading it takes as long.
_LEAST_DISCARDED_BYTES: Final = 4 * 2**10
_DISCARD_SECONDS: Final = 5.0


class SlowReader(Exception):
    """A client doesn't read its response."""


class Bodies:
    """The bodies of all requests in progress."""

    def __init__(self) -> None:
        self._arriving: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._total = 0
        self._turn = asyncio.Lock()
        self._barred: dict[str, float] = {}

    @contextmanager
    def arriving(self, caller: str) -> Iterator[None]:
        """Counts a body as long as the block runs.

        Raises:
            HttpError: 429, the caller sends too many at once.
        """
        if self._arriving[caller] >= MOST_ARRIVING:
            raise _too_much(f"{caller} is sending {MOST_ARRIVING} other bodies: send fewer at the same time")
        self._arriving[caller] += 1
        try:
            yield
        finally:
            self._arriving[caller] -= 1
            if not self._arriving[caller]:
                del self._arriving[caller]

    async def pace(self, caller: str) -> None:
        """Rests between two parts of a body while the caller sends many: dozens at once would keep the loop busy."""
        if self._arriving[caller] > _UNPACED_BODIES:
            await asyncio.sleep(_PACE_SECONDS)

    def hold(self, caller: str, size: int) -> None:
        """Counts bytes that have arrived.

        Raises:
            HttpError: 429, this caller's bodies, or all bodies, take too much memory.
        """
        self._held[caller] += size
        self._total += size
        if self._held[caller] > MOST_CALLER_BYTES or self._total > MOST_HELD_BYTES:
            raise _too_much(f"requests in progress hold {self._held[caller]:,} bytes of {caller}'s bodies and "
                            f"{self._total:,} of all; the limits are {MOST_CALLER_BYTES:,} and {MOST_HELD_BYTES:,}: "
                            "send fewer at the same time")  # fmt: skip

    def release(self, caller: str, size: int) -> None:
        """Counts bytes of a request that has ended."""
        self._total -= size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]

    def bar(self, caller: str) -> None:
        """Makes a caller wait before its next body after a large one was refused."""
        self._barred[caller] = time.monotonic() + _BARRED_SECONDS

    async def wait_turn(self, caller: str) -> None:
        """Spaces out the parsing of large bodies, which holds the event loop and with it every other request."""
        while True:
            await asyncio.sleep(max(self._barred.get(caller, 0.0) - time.monotonic(), 0.0))
            await self._turn.acquire()
            if self._barred.get(caller, 0.0) <= time.monotonic():
                break
            self._turn.release()
        loop, began = asyncio.get_running_loop(), time.perf_counter()

        def rest() -> None:
            loop.call_later(_REST * (time.perf_counter() - began), self._turn.release)

        # The caller parses its body before the loop continues.
        loop.call_soon(rest)


class LimitedBody:
    """The body of one request.

    Args:
        content_length: the header, if there is one; what arrives counts, whatever it says.
        caller: who the memory is counted for.

    Raises:
        HttpError: 413, Content-Length exceeds the path's limit.
    """

    def __init__(self, bodies: Bodies, path: str, content_length: bytes | None, caller: str, receive: Receive) -> None:
        self._bodies, self._caller, self._receive = bodies, caller, receive
        self._limit, self._size = BODY_BYTES.get(path, MOST_BODY_BYTES), 0
        self._values = self._parts = 0
        self._until = asyncio.get_running_loop().time() + BODY_SECONDS
        self._body: bytes | None = None
        if content_length is not None and (not content_length.isdigit() or int(content_length[:20]) > self._limit):
            raise self._too_large()

    async def read(self) -> None:
        """Waits until the body has arrived.

        Raises:
            HttpError: 408, 413 or 429, it breaks a limit; 400, it ends early or its chunks are malformed.
        """
        parts: list[bytes] = []
        with self._bodies.arriving(self._caller):
            try:
                async with asyncio.timeout_at(self._until):
                    while (message := await self._receive())["type"] == "http.request":
                        parts.append(message.get("body", b""))
                        self._count(parts[-1])
                        if not message.get("more_body", False):
                            self._body = b"".join(parts)
                            return
                        await self._bodies.pace(self._caller)
            except TimeoutError:
                detail = f"the body did not arrive within {BODY_SECONDS:.0f} s: send it faster, or split the request"
                raise HttpError(408, "body-too-slow", detail, {"Connection": "close"}) from None
        detail = "the body ends early, or its chunks are malformed: send as many bytes as announced"
        raise HttpError(400, "malformed-body", detail, {"Connection": "close"})

    async def receive(self) -> Message:
        """The whole body, in its turn; afterwards the client's disconnection."""
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        if len(body) > _LARGE_BYTES:
            await self._bodies.wait_turn(self._caller)
        return {"type": "http.request", "body": body, "more_body": False}

    def release(self, status: int) -> None:
        """Records that the request has ended, and how."""
        self._bodies.release(self._caller, self._size)
        if self._size > _LARGE_BYTES and status in (400, 413, 422):
            self._bodies.bar(self._caller)

    def _count(self, part: bytes) -> None:
        self._size += len(part)
        self._parts += 1
        self._values += part.count(b",")
        self._bodies.hold(self._caller, len(part))
        if self._size > self._limit:
            raise self._too_large()
        if self._parts > MOST_PARTS + self._size // _LEAST_PART_BYTES:
            raise _refusal(f"the body arrives in more than {MOST_PARTS} small parts: send larger chunks")
        if self._values > MOST_VALUES:
            raise _refusal(f"the body has more than {MOST_VALUES:,} values: split the request")

    def _too_large(self) -> HttpError:
        return _refusal(f"the body is longer than {self._limit:,} bytes: split the request")


async def discard(receive: Receive) -> None:
    """Reads a body without keeping it, up to a size and a time."""
    left = _DISCARDED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0 and (message := await receive()).get("more_body", False):
                left -= max(len(message["body"]), _LEAST_DISCARDED_BYTES)


async def send_in_pieces(send: Send, message: Message) -> None:
    """Sends a part of a response's body at the pace of its client.

    Raises:
        SlowReader: the client doesn't read.
    """
    body, more = message.get("body", b""), message.get("more_body", False)
    if not more and len(body) <= _PIECE_BYTES:
        await send(message)
        return
    for first in range(0, max(len(body), 1), _PIECE_BYTES):
        piece, further = body[first : first + _PIECE_BYTES], more or first + _PIECE_BYTES < len(body)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": further})
        except TimeoutError:
            raise SlowReader(f"{len(piece):,} bytes were not read within {WRITE_SECONDS:.0f} s") from None


def _refusal(detail: str) -> HttpError:
    return HttpError(413, "body-too-large", detail, {"Connection": "close"})


def _too_much(detail: str) -> HttpError:
    return HttpError(429, "too-much-at-once", detail, {"Retry-After": "1", "Connection": "close"})
