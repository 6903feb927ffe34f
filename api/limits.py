"""Limits: the size of a body, and the request rate of a caller."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

#: Limit for paths that are not in `BODY_BYTES`.
MOST_BODY_BYTES: Final = 2**20
#: Paths that accept more: 10,000 problems with every field spelled out, or a cubin in base64.
BODY_BYTES: Final[Mapping[str, int]] = {
    path: 4 * 2**20 for path in ("/v1/best:batch", "/v1/builds", "/v1/campaigns", "/v1/campaigns:estimate")
}
#: More than ten times the longest valid query.
MOST_QUERY_BYTES: Final = 8192
#: A caller may save up this many seconds' worth of requests.
_BURST_SECONDS: Final = 2.0
#: Buckets kept; the least recently used one is dropped first.
_MOST_CALLERS: Final = 10_000


class RateLimiter:
    """A token bucket per caller: `per_second` sustained, bursts of twice as many.

    Args:
        per_second: 0 sets no limit.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = max(per_second * _BURST_SECONDS, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, caller: str) -> float:
        """Takes a token from the caller's bucket and returns 0; if it is empty, returns the time until the next one."""
        if not self._per_second:
            return 0.0
        now = self._clock()
        left, since = self._buckets.get(caller, (self._most, now))
        left = min(self._most, left + (now - since) * self._per_second)
        allowed = left >= 1.0
        self._buckets[caller] = (left - 1.0 if allowed else left, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second


def body_limit(path: str) -> int:
    """The largest accepted body for `path`, in bytes."""
    return BODY_BYTES.get(path, MOST_BODY_BYTES)


def limited_body(receive: Receive, limit: int) -> Receive:
    """Wraps `receive` to fail with 413 once the body exceeds `limit` bytes, whatever its Content-Length says."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit:
                # Starlette's own exception: it passes through FastAPI's body parsing unchanged.
                raise HTTPException(413, f"the body is longer than {limit:,} bytes: split the request")
        return message

    return receive_limited


def repeated_parameter(query: bytes) -> str | None:
    """The first parameter that a query string repeats, or None. Choosing one of its values would be a guess."""
    if b"&" not in query:
        return None
    names = [part.partition(b"=")[0] for part in query.split(b"&") if part]
    if len(set(names)) == len(names):
        return None
    return next(name for name in names if names.count(name) > 1).decode("latin-1")
