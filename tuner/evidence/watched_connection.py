"""A connection of psycopg that ends when the server stops answering."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready

#: A working server ends a statement within 20 s; a longer silence means that it is dead.
SILENCE_SECONDS: Final = 25.0
#: Most of one look that counts as silence. psycopg looks every tenth of a second: a longer look means that this process
#: was paused, and the server perhaps with it.
_MOST_LOOK_SECONDS: Final = 0.5
T = TypeVar("T")


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server is silent for too long.

    Attributes:
        silence_seconds: longest wait for the server's next bytes; None for no limit.
    """

    silence_seconds: float | None = SILENCE_SECONDS

    def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:  # noqa: ANN401  (psycopg's own signature)
        """Runs one exchange with the server.

        Raises:
            OperationalError: the server was silent; the connection is closed.
        """
        return super().wait(self._heard(gen), *arguments, **named)

    def _heard(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        # psycopg resumes the exchange every tenth of a second, with `NONE` if nothing has arrived.
        silent_seconds = 0.0
        try:
            wanted = next(gen)
            while True:
                began = time.monotonic()
                ready = yield wanted
                if ready != Ready.NONE:
                    silent_seconds = 0.0
                else:
                    silent_seconds += min(time.monotonic() - began, _MOST_LOOK_SECONDS)
                if self.silence_seconds is not None and silent_seconds > self.silence_seconds:
                    self.close()
                    raise psycopg.OperationalError(f"the server was silent for {self.silence_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value
