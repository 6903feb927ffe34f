"""The end of a worker that was told to end: in time, whatever hangs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from tuner.exits import EXIT_SERVICE
from tuner.settings import END_SECONDS

_log = logging.getLogger("gemmtune.agent")
_CLOSE_SECONDS: Final = 2.0


class LastResort:
    """Ends this process some time after it was told to end, if it has not ended by itself.

    Args:
        close: closes the device, whose own process would survive otherwise.
    """

    def __init__(self, close: Callable[[], None], seconds: float = END_SECONDS) -> None:
        self._close, self._seconds = close, seconds
        self._thread = threading.Thread(target=self._run, name="last-resort", daemon=True)

    def start(self) -> None:
        """Starts the clock; further calls do nothing. Safe to call from signal handlers."""
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        time.sleep(self._seconds - _CLOSE_SECONDS)
        _log.error("not ended %g s after it was told to: the round is dropped", self._seconds - _CLOSE_SECONDS)
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        os._exit(EXIT_SERVICE)
