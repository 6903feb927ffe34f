"""Limits: how large a body may be, and how often one caller may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

#: No body is longer, unless its path is in `BODY_BYTES`.
MOST_BODY_BYTES: Final = 2**20
#: Paths that take more: 10,000 problems and more with every field written out, a cubin in base64.
BODY_BYTES: Final[Mapping[str, int]] = {
    path: 4 * 2**20 for path in ("/v1/best:batch", "/v1/builds", "/v1/campaigns", "/v1/campaigns:estimate")
}
#: No query that we know is a tenth of it.
MOST_QUERY_BYTES: Final = 8192
#: How many seconds' worth of requests a caller may save up.
_BURST_SECONDS: Final = 2.0
#: Callers remembered; the one that was silent for longest is forgotten first.
_MOST_CALLERS: Final = 10_000


class Rates:
    """A token bucket for each caller: `per_second` in the long run, twice as many at once.

    Args:
        per_second: 0 sets no limit.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = max(per_second * _BURST_SECONDS, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, caller: str) -> float:
        """0 when the caller may ask now, and has asked; else how long until it may."""
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
    """The most bytes that a body sent to `path` may have."""
    return BODY_BYTES.get(path, MOST_BODY_BYTES)


def counted(receive: Receive, limit: int) -> Receive:
    """`receive`, which fails with 413 as soon as more than `limit` bytes of body came, whatever their headers said."""
    received = 0

    async def receive_counted() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit:
                # The framework's own kind of error: it passes through its parsing of bodies unchanged.
                raise HTTPException(413, f"the body is longer than {limit:,} bytes: send less at once")
        return message

    return receive_counted


def repeated_parameter(query: bytes) -> str | None:
    """A parameter that a query string names twice; which of the two counts would be a guess."""
    if b"&" not in query:
        return None
    names = [part.partition(b"=")[0] for part in query.split(b"&") if part]
    if len(set(names)) == len(names):
        return None
    return next(name for name in names if names.count(name) > 1).decode("latin-1")
