"""Concurrency limits: only a few CPU-heavy calls run at once, and the others queue.

Python runs one thread at a time. If every thread of the pool handles a report, the reports finish no sooner than one
after the other would, but each of them holds its locks until the end, and short calls such as claims wait behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
#: Whether somebody still waits for what a call returns.
Wanted = Callable[[], bool]

#: Concurrent reports, and concurrent shorter calls about rounds (mostly claims). While one waits for the database,
#: another runs.
CONCURRENT_REPORTS: Final = 3
CONCURRENT_ROUND_CALLS: Final = 3
#: Concurrent batches of questions. Each occupies Python for a tenth of a second; two at a time make everybody else wait
#: ten times as long for it.
CONCURRENT_BATCHES: Final = 1
#: Batches of one caller in progress, from the first problem looked up to the last byte sent.
CALLER_BATCHES: Final = 4
#: Threads of the shared pool that one caller's requests take at once.
CALLER_THREADS: Final = 4
#: Concurrent estimates of campaigns, and campaigns that are created at once. Each occupies Python for seconds.
CONCURRENT_ESTIMATES: Final = 1
CONCURRENT_CREATIONS: Final = 1
#: Longest rest between two parts of a long call.
_MOST_REST_SECONDS: Final = 0.05


class Unwanted(Exception):
    """A call was left out: when its turn came, nobody waited for it any more."""


def always() -> bool:
    """As `Wanted`: somebody waits, whatever happens."""
    return True


class ConcurrencyLimit:
    """Runs calls in threads, first come, first served.

    Args:
        most: calls that run at the same time.
    """

    def __init__(self, most: int) -> None:
        self._limiter = CapacityLimiter(most)

    async def run(self, call: Callable[[], T]) -> T:
        """Waits for a free slot, then returns or raises what `call` does."""
        return await to_thread.run_sync(call, limiter=self._limiter)

    def is_wanted(self) -> bool:
        """Whether calls wait for a slot."""
        return self._limiter.statistics().tasks_waiting > 0


class SharedCalls:
    """Calls on one event loop that requests share: a call that has not begun yet serves every waiting request.

    A commit makes all open pages ask the same within milliseconds: the first request's call runs, and all others share
    the next one. No request gets an answer that is older than itself.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, tuple[asyncio.Task[Any], list[Wanted]]] = {}
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def run(self, key: Hashable, call: Callable[[Wanted], Awaitable[T]], wanted: Wanted = always) -> T:
        """Returns or raises what `call` does, or another call with the same key that begins later than now.

        Args:
            call: is told whether one of the requests that share it still wants it.
            wanted: whether this request does.
        """
        if (waiting := self._waiting.get(key)) is None:
            task: asyncio.Task[T] = asyncio.create_task(self._in_turn(key, call))
            # A failure is known even if every client has left.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            waiting = self._waiting[key] = task, []
        shared, sharers = waiting
        sharers.append(wanted)
        # The others still wait if one client leaves.
        found: T = await asyncio.shield(shared)
        return found

    async def _in_turn(self, key: Hashable, call: Callable[[Wanted], Awaitable[T]]) -> T:
        if (turn := self._turns.get(key)) is None:
            turn = self._turns[key] = asyncio.Lock()
        async with turn:
            _, sharers = self._waiting.pop(key)
            return await call(lambda: any(wanted() for wanted in sharers))


class CallerSlots:
    """Requests of each caller in progress at once. Further ones of the same caller wait.

    Args:
        most: of one caller.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # A caller's slots are forgotten with its last request.
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Waits for a slot of this caller, and holds it while the block runs."""
        if (slots := self._slots.get(caller)) is None:
            slots = self._slots[caller] = asyncio.Semaphore(self._most)
        async with slots:
            yield


class FairLimit:
    """Runs calls in threads, one of each caller in turn, however many a caller has waiting.

    Args:
        most: calls that run at the same time, of all callers.
    """

    def __init__(self, most: int) -> None:
        # A caller has one call at most in the limit's queue, so that this queue goes round the callers.
        self._slots, self._limit = CallerSlots(1), ConcurrencyLimit(most)

    async def run(self, caller: str, call: Callable[[], T], wanted: Wanted = always) -> T:
        """Waits for this caller's turn, then returns or raises what `call` does.

        Raises:
            Unwanted: by then nobody wants it any more.
        """

        def begin() -> T:
            if not wanted():
                raise Unwanted
            return call()

        async with self._slots.of(caller):
            return await self._limit.run(begin)


class Rests:
    """Rests between the parts of a long call in a thread while other calls wait for its slot.

    A queue of long calls would keep Python busy without a pause, and every other request would wait for it several
    times. A call that is alone does not rest.

    Args:
        limit: of the call.
    """

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit, self._since = limit, time.perf_counter()

    def __call__(self) -> None:
        """Rests for as long as the last part took."""
        if self._limit.is_wanted():
            time.sleep(min(time.perf_counter() - self._since, _MOST_REST_SECONDS))
        self._since = time.perf_counter()
