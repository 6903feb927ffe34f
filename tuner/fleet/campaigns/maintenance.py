"""Maintenance: a thread that sweeps a store for as long as its process serves it."""

from __future__ import annotations

import logging
import threading
from typing import Self

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING, Timing
from tuner.fleet.campaigns.sweep import Sweeper

_log = logging.getLogger("gemmtune.maintenance")


class Maintenance:
    """Sweeps about once a second between `__enter__` and `__exit__`; retries while the database is unreachable."""

    def __init__(self, store: Store, timing: Timing = TIMING) -> None:
        self._sweeper = Sweeper(store, timing)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._sweeper.pause_seconds):
            try:
                swept = self._sweeper.sweep()
            except StoreError as error:
                _log.warning("%s", error)
            except Exception:
                # A defect must not end the thread: lost workers would then keep their rounds.
                _log.exception("a sweep failed")
            else:
                for kind, count in swept.items():
                    _log.info("%s: %d", kind, count)
