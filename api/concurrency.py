"""Concurrency limits: only a few CPU-heavy calls run at once, and the others queue.

Python runs one thread at a time. If every thread of the pool handles a report, the reports finish no sooner than one
after the other would, but each of them holds its locks until the end, and short calls such as claims wait behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")

#: Concurrent reports, and concurrent shorter calls about rounds (mostly claims). While one waits for the database,
#: another runs.
CONCURRENT_REPORTS: Final = 3
CONCURRENT_ROUND_CALLS: Final = 3
#: Concurrent batches of questions. Each occupies Python for a tenth of a second; two at a time make everybody else wait
#: ten times as long for it.
CONCURRENT_BATCHES: Final = 1


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
