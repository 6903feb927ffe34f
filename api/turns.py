"""Turns: how many requests of one caller begin before everybody else has had a chance."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

#: Requests of one caller that begin in one turn of the event loop.
MOST_OF_A_CALLER: Final = 4
#: A caller that has been alone for this long needs no turns.
_ALONE_SECONDS: Final = 1.0
#: The event loop's timers are no finer.
_LEAST_REST_SECONDS: Final = 0.001


class Turns:
    """Fair turns of callers on one event loop.

    The loop runs everything that is ready before it looks for more, so a caller with many connections would make every
    other request wait for all of its own. Beyond a few of a caller's requests, the others wait for the loop's next
    turns. A caller that hurries, or that has more than a few waiting, begins one a turn, and the loop rests after it
    for as long as it took: an answer that a thread reads from the store needs several turns of the loop.

    Args:
        hurries: whether a caller asks more often than it may for long.
    """

    def __init__(self, hurries: Callable[[str], bool]) -> None:
        self._hurries = hurries
        self._begun = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._last, self._mixed_until = "", 0.0
        self._hurried_at, self._rest_until = 0.0, 0.0
        self._ends = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, caller: str, now: float) -> asyncio.Future[None] | None:
        """None if a request may begin at once; otherwise what it has to await first.

        Args:
            now: by `time.perf_counter`.
        """
        if caller != self._last:
            self._last, self._mixed_until = caller, now + _ALONE_SECONDS
        if now > self._mixed_until and not self._waiting:
            return None
        if not self._ends:
            self._ends = True
            asyncio.get_running_loop().call_soon(self._end)
        if self._begun[caller] < MOST_OF_A_CALLER and caller not in self._waiting and not self._hurries(caller):
            self._begun[caller] += 1
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def _end(self) -> None:
        """Ends a turn, and begins the next one."""
        self._ends, now = False, time.perf_counter()
        self._begun.clear()
        if self._hurried_at:
            self._rest_until, self._hurried_at = 2 * now - self._hurried_at, 0.0
        for caller, turns in list(self._waiting.items()):
            if len(turns) <= MOST_OF_A_CALLER and not self._hurries(caller):
                self._release(caller, MOST_OF_A_CALLER)
            elif now >= self._rest_until:
                self._hurried_at = now
                self._release(caller, 1)
        loop = asyncio.get_running_loop()
        if self._begun:
            self._ends = True
            loop.call_soon(self._end)
        elif self._waiting and self._timer is None:
            self._timer = loop.call_later(max(self._rest_until - now, _LEAST_REST_SECONDS), self._rested)

    def _rested(self) -> None:
        self._timer = None
        if not self._ends:
            self._end()

    def _release(self, caller: str, most: int) -> None:
        turns = self._waiting[caller]
        while turns and self._begun[caller] < most:
            turn = turns.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begun[caller] += 1
        if not turns:
            del self._waiting[caller]
