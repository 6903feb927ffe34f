"""Limits: the size of a query, and the request rate of a caller."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from api.http_errors import FieldError, HttpError

#: More than ten times the longest valid query.
MOST_QUERY_BYTES: Final = 8192
#: Headers that a request has at most once.
_ONCE: Final = frozenset(
    {b"host", b"authorization", b"content-type", b"content-length", b"content-encoding", b"idempotency-key"}
)
#: A caller may save up this many seconds' worth of requests.
_BURST_SECONDS: Final = 2.0
#: A caller that has used this share of them hurries.
_HURRY_SHARE: Final = 1 / 32
#: Buckets kept; the least recently used one is dropped first.
_MOST_CALLERS: Final = 10_000


class RateLimiter:
    """A token bucket per caller, for any thread: `per_second` sustained, bursts of twice as many.

    Args:
        per_second: 0 sets no limit.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = max(per_second * _BURST_SECONDS, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_seconds(self, caller: str) -> float:
        """Takes a token from the caller's bucket and returns 0; if it is empty, returns the time until the next one."""
        if not self._per_second:
            return 0.0
        with self._lock:
            left, now = self._left(caller)
            allowed = left >= 1.0
            self._buckets[caller] = (left - 1.0 if allowed else left, now)
            self._buckets.move_to_end(caller)
            if len(self._buckets) > _MOST_CALLERS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second

    def hurries(self, caller: str) -> bool:
        """Whether a caller has begun to use up what it saved."""
        return bool(self._per_second) and self._left(caller)[0] < self._most * (1 - _HURRY_SHARE)

    def _left(self, caller: str) -> tuple[float, float]:
        now = self._clock()
        left, since = self._buckets.get(caller, (self._most, now))
        return min(self._most, left + (now - since) * self._per_second), now


def check_headers(headers: Collection[tuple[bytes, bytes]]) -> None:
    """Refuses a second value where another program on the way may have read the first (RFC 9112 §3.2).

    Raises:
        HttpError: a header that says who asks, or what, is repeated.
    """
    for name, count in Counter(name for name, _ in headers if name in _ONCE).items():
        if count > 1:
            raise HttpError(400, "repeated-header", f"the header {name.decode()} is repeated: send it once")


def check_coding(content_encoding: bytes) -> None:
    """Refuses a compressed body, which would be told that it is no JSON (RFC 9110 §15.5.16).

    Raises:
        HttpError: it is compressed.
    """
    coding = content_encoding.decode("latin-1").strip().lower()
    if coding not in ("", "identity"):
        raise HttpError(415, "not-json", f"the body is sent with Content-Encoding {coding[:80]!r}: send it "
                        "uncompressed")  # fmt: skip


def check_query(query: bytes) -> None:
    """Checks a query string before anything parses it.

    Raises:
        HttpError: it is too long, or repeats a parameter: choosing one of its values would be a guess.
    """
    if len(query) > MOST_QUERY_BYTES:
        raise HttpError(414, "query-too-long", f"the query is longer than {MOST_QUERY_BYTES:,} bytes: shorten it")
    names = [part.partition(b"=")[0].replace(b"+", b" ") for part in query.split(b"&") if part]
    # As whoever parses it spells them: %6D is m.
    for name, count in Counter(map(unquote_to_bytes, names)).most_common(1):
        if count > 1:
            twice = name.decode("latin-1")[:80]
            raise HttpError(422, "malformed-request", f"{twice} is repeated: give each parameter once")


def check_no_query(query: str) -> None:
    """Refuses parameters of a path that takes none: a filter that filters nothing would be believed.

    Raises:
        HttpError: a parameter is given.
    """
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    wrong = [FieldError(pointer=name, detail="no such field: this path takes no query") for name in names]
    if wrong:
        detail = f"{wrong[0].pointer}: {wrong[0].detail}; see /openapi.json for the schema"
        raise HttpError(422, "malformed-request", detail, errors=wrong)
