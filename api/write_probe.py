"""The write probe: knows whether the service's store accepts writes, without a request having to wait for it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.repeats import Repeats

#: Between two writes that mean nothing.
_PAUSE_SECONDS: Final = 2.0
#: A write that has not ended after this long counts as refused.
_PATIENCE_SECONDS: Final = 8.0
_log = logging.getLogger("gemmtune.probe")


class WriteProbe:
    """Writes to one store from a thread of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self._refusal, self._failures = "", Repeats()
        self._answered_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="write-probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops writing; a write in progress is left to end with the process."""
        self._stop.set()

    def refusal(self) -> str:
        """Why the store accepts no writes; empty while it does."""
        silent = time.monotonic() - self._answered_at
        if silent > _PATIENCE_SECONDS + _PAUSE_SECONDS:
            return self._refusal or f"the store has not accepted a write for {silent:.0f} s"
        return self._refusal

    def ask(self) -> None:
        """Writes once."""
        refusal = ""
        try:
            self._store.check_writable()
        except StoreError as error:
            refusal = self._store.unnamed(str(error))
            if self._failures.is_news(error):
                _log.error("%s", refusal)
        except Exception as error:
            # The thread must survive even a defect, or the service would never be ready again.
            refusal = "the store could not be written"
            if self._failures.is_news(error):
                _log.exception("the write probe failed")
        else:
            self._failures.end()
        self._refusal, self._answered_at = refusal, time.monotonic()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask()
            self._stop.wait(_PAUSE_SECONDS)
