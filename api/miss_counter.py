"""The miss counter: counts questions without a measured answer in memory, and writes them down now and then."""

from __future__ import annotations

import logging
import threading
from typing import Final

from tuner.errors import StoreError
from tuner.evidence import misses
from tuner.evidence.store import Store

#: Between two writes.
_PAUSE_SECONDS: Final = 10.0
#: Different questions between two writes; more are not counted.
_MOST_COUNTED: Final = 10_000
_log = logging.getLogger("gemmtune.misses")


class MissCounter:
    """Counts misses from any thread, and writes them from one of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="misses", daemon=True)

    def count(self, key: str, device: str) -> None:
        with self._lock:
            if (key, device) in self._counts or len(self._counts) < _MOST_COUNTED:
                self._counts[key, device] = self._counts.get((key, device), 0) + 1

    def write(self) -> None:
        """Writes what was counted; keeps it for the next time if the store refuses."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            misses.add(self._store, counts)
        except StoreError as error:
            _log.warning("misses can't be written now: %s", error)
            with self._lock:
                for place, count in counts.items():
                    if place in self._counts or len(self._counts) < _MOST_COUNTED:
                        self._counts[place] = self._counts.get(place, 0) + count

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Writes what is left, and ends."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_PAUSE_SECONDS)

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._stop.wait(_PAUSE_SECONDS)
            try:
                self.write()
            except Exception:
                # The thread must survive even a defect, or no question would be counted any more.
                _log.exception("misses are lost")
