"""Event streams: how many may be open at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from api.concurrency import ConcurrencyLimit
from api.http_errors import HttpError

#: Open streams of one caller, such as a team's pages with one token, and of all. A campaign's stream polls the store
#: every second; streams of everything share one poll.
MOST_CALLER_STREAMS: Final = 32
MOST_STREAMS: Final = 64


class EventStreams:
    """The open event streams.

    Attributes:
        polls: one at a time; polls of all streams at once would hold Python for a fifth of a second.
    """

    def __init__(self) -> None:
        self.polls = ConcurrencyLimit(1)
        self._open: Counter[str] = Counter()

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
