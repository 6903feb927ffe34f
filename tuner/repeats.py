"""Repeats: a loop that fails many times a second tells each failure at once, and one that stays once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: A line a minute rotates no older ones out of a log, and whoever opens the log sees that the failure goes on.
AGAIN_SECONDS: Final = 60.0


class Repeats:
    """The failures that one loop has told lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    def is_news(self, error: Exception) -> bool:
        """Whether a failure has to be told, which counts as told from now on."""
        now, said = self._clock(), repr(error)
        self._told = {text: at for text, at in self._told.items() if now - at < AGAIN_SECONDS}
        if said in self._told:
            return False
        self._told[said] = now
        return True

    def end(self) -> None:
        """The loop has succeeded: its next failure is told at once."""
        self._told.clear()
