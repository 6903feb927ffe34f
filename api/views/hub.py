"""The hub: one look at the store serves every listener, however many pages are open."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import orjson
from fastapi.sse import ServerSentEvent

from api.concurrency import ConcurrencyLimit
from tuner.errors import StoreError
from tuner.repeats import Repeats
from tuner.views.feed import Event, Feed

#: Between two looks; an event reaches its listeners within this time and that of a look.
_POLL_SECONDS: Final = 0.12
#: A look takes at most this share of the time, unless the next one would come later than `_LATEST_SECONDS`.
_MOST_SHARE: Final = 0.02
_LATEST_SECONDS: Final = 0.25
#: Looks go on for this long after the last listener has left, so that it can come back and resume.
_LINGER_SECONDS: Final = 60.0
#: Events that are kept for listeners who come back.
MOST_KEPT: Final = 10_000
_log = logging.getLogger("gemmtune.events")
#: An event, and its message, which all listeners share.
Told = tuple[ServerSentEvent, Event]


class EventHub:
    """Events of one store for listeners on one event loop.

    Attributes:
        epoch: part of every event's id; a listener with another one has missed events.

    Args:
        make_feed: a feed that begins now.
        stopping: wakes all listeners once it is set.
    """

    def __init__(self, make_feed: Callable[[], Feed], stopping: threading.Event) -> None:
        self._make_feed, self._stopping = make_feed, stopping
        self._events: deque[Told] = deque(maxlen=MOST_KEPT)
        self._count, self.epoch = 0, ""
        self._listeners: set[asyncio.Event] = set()
        self._left_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._polls = ConcurrencyLimit(1)

    async def listen(self, last_event_id: str | None) -> tuple[Listener, bool]:
        """A listener, and whether it resumes; if so, it gets every event after the one with this id."""
        wake = asyncio.Event()
        self._listeners.add(wake)
        if self._task is None or self._task.done():
            self._begun.clear()
            self._task = asyncio.create_task(self._run())
        try:
            await self._begun.wait()
        except asyncio.CancelledError:
            # The client has left already: looks must not go on for it.
            self.leave(wake)
            raise
        epoch, _, number = (last_event_id or "").partition("-")
        after = int(number) if number.isascii() and number.isdigit() and len(number) < 16 else -1
        resumed = epoch == self.epoch and self._count - len(self._events) <= after <= self._count
        return Listener(self, wake, after if resumed else self._count), resumed

    def leave(self, wake: asyncio.Event) -> None:
        """Forgets a listener."""
        self._listeners.discard(wake)
        self._left_at = time.monotonic()

    def after(self, number: int) -> tuple[list[Told], int, bool]:
        """Events with a higher number, the number of the last one, and whether some are no longer kept: then none."""
        first = len(self._events) - (self._count - number)
        if first < 0:
            return [], self._count, True
        return [self._events[place] for place in range(first, len(self._events))], self._count, False

    async def close(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        feed, self.epoch = self._make_feed(), secrets.token_hex(4)
        self._events.clear()
        failing, looked, failures = False, False, Repeats()
        while self._listeners or time.monotonic() - self._left_at < _LINGER_SECONDS:
            began, missed = time.monotonic(), False
            try:
                found = await self._polls.run(feed.poll)
                # No event tells what changed before the first look: who listens by then has to read again.
                missed, failing, looked = failing and not looked, False, True
                failures.end()
                if feed.replaced:
                    # Nothing that was told holds in a restored store, and its numbers mean other rounds and workers.
                    self.epoch, missed = secrets.token_hex(4), True
                    self._events.clear()
            except Exception as error:
                # Listeners stay: events go on when the store can be read again.
                if failures.is_news(error):
                    _log.error("no events: %s", error, exc_info=not isinstance(error, StoreError))
                failing, found = True, []
            self._count += missed
            for event in found:
                self._count += 1
                text = orjson.dumps(event.data).decode()
                message = ServerSentEvent(event=event.name, raw_data=text, id=f"{self.epoch}-{self._count}")
                self._events.append((message, event))
            self._begun.set()
            if found or missed or self._stopping.is_set():
                for wake in self._listeners:
                    wake.set()
            took = time.monotonic() - began
            await asyncio.sleep(min(max(_POLL_SECONDS, took / _MOST_SHARE), max(_LATEST_SECONDS, 5 * took)))


class Listener:
    """A listener at one place in the sequence of events.

    Attributes:
        missed: it was so slow that events before those to come are no longer kept.
    """

    def __init__(self, hub: EventHub, wake: asyncio.Event, after: int) -> None:
        self._hub, self._wake, self._after = hub, wake, after
        self.missed = False

    async def next(self, seconds: float) -> list[Told]:
        """The new events; none after some were missed. Waits for one, up to a limit, and no longer than the service
        runs."""
        found, self._after, self.missed = self._hub.after(self._after)
        if not (found or self.missed):
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), seconds)
            except TimeoutError:
                return []
            found, self._after, self.missed = self._hub.after(self._after)
        return found

    def id(self) -> str:
        """The id of the last event before those to come."""
        return f"{self._hub.epoch}-{self._after}"

    def close(self) -> None:
        """Stops listening."""
        self._hub.leave(self._wake)


def moment() -> str:
    """The time, for `hello`."""
    return datetime.now(UTC).isoformat()
