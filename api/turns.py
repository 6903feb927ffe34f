"""Turns: of calls that are heavy on the processor, only a few are under way at once; the others wait their turn.

Python runs one thread at a time. As many reports as there are threads, all of them under way, end no sooner than one
after the other would; but each of them ends last, with its locks held meanwhile, and whoever only wants to claim waits
among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")

#: Reports under way, and shorter calls about rounds (claims above all). While one waits for the database, another runs.
REPORTS_AT_ONCE: Final = 3
OTHERS_AT_ONCE: Final = 3


class Turns:
    """Calls of one kind, first come, first served; each in a thread.

    Args:
        at_once: most that are under way.
    """

    def __init__(self, at_once: int) -> None:
        self._limiter = CapacityLimiter(at_once)

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises, once its turn has come."""
        return await to_thread.run_sync(call, limiter=self._limiter)
