"""Event streams: how many may be open at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from fastapi import Request

from api.auth import TokenCache
from api.concurrency import ConcurrencyLimit
from api.http_errors import HttpError
from tuner.repeats import Repeats

T = TypeVar("T")

#: Open streams of one caller, such as a team's pages with one token, and of all. A campaign's stream polls the store
#: every second; streams of everything share one poll.
MOST_CALLER_STREAMS: Final = 32
MOST_STREAMS: Final = 64
#: A stream without news looks this often whether it may go on.
MOST_WAIT_SECONDS: Final = 5.0
#: After a poll the next one waits this many times as long as it took: dozens in a row would be felt by every request.
_REST: Final = 4.0


class EventStreams:
    """The open event streams.

    Attributes:
        failures: of streams that can't read the store; all of them meet the same ones.
    """

    def __init__(self) -> None:
        self._turn, self._limit = asyncio.Lock(), ConcurrencyLimit(1)
        self._open: Counter[str] = Counter()
        self.failures = Repeats()

    @contextmanager
    def opened(self, caller: str) -> Iterator[None]:
        """Counts one stream as long as the block runs.

        Raises:
            HttpError: 429, the caller has too many, or there are too many.
        """
        if self._open[caller] >= MOST_CALLER_STREAMS or self._open.total() >= MOST_STREAMS:
            detail = (f"{caller} has {self._open[caller]} open event streams of {self._open.total()}; the limits are "
                      f"{MOST_CALLER_STREAMS} of {MOST_STREAMS}: close one, or poll the campaign")  # fmt: skip
            raise HttpError(429, "too-many-streams", detail, {"Retry-After": "10"})
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    async def poll(self, call: Callable[[], T]) -> T:
        """Reads the store for a stream in a thread of its own: one stream at a time, at most a fifth of the time."""
        await self._turn.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._limit.run(call)
        finally:
            loop.call_later(_REST * (loop.time() - began), self._turn.release)


async def count_stream(request: Request) -> AsyncIterator[None]:
    """A dependency that counts a stream until it ends, and refuses one too many."""
    with request.app.state.streams.opened(request.state.who):
        yield


def may_go_on(request: Request) -> bool:
    """Whether a stream may send more: its caller's token is still valid, and the service is not told to stop."""
    state = request.app.state
    token_cache: TokenCache = state.token_cache
    authorization = dict(request.scope["headers"]).get(b"authorization")
    return not (state.stopping.is_set() or isinstance(token_cache.caller(authorization), HttpError))
