"""Delays between the attempts of a call."""

from __future__ import annotations

from typing import Final

from tuner.errors import TunerError, Unreachable

#: Delay before a call is retried; doubled each time, up to the longest.
_FIRST_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 3.0
#: A service is obeyed up to this: a worker that is told to end meanwhile still has time to report its round.
MOST_ASKED_SECONDS: Final = 10.0


def asked(error: Exception) -> float:
    """The wait that the service asks for, with its `Retry-After`; 0 if it asks for none."""
    return min(error.retry_after, MOST_ASKED_SECONDS) if isinstance(error, Unreachable) else 0.0


class Backoff:
    """The delays of one call's attempts, at least as long as the service asks."""

    def __init__(self) -> None:
        self._seconds = _FIRST_SECONDS

    def after(self, error: TunerError) -> float:
        """The delay after an attempt that failed."""
        seconds, self._seconds = self._seconds, min(2 * self._seconds, _LONGEST_SECONDS)
        return max(seconds, asked(error))
