"""The follower: keeps the snapshot and the tokens of a service up with its store, within a second."""

from __future__ import annotations

import gc
import logging
import threading
import time
from typing import Final

from api.auth import Keyring
from api.snapshot import Snapshot
from tuner.errors import StoreError
from tuner.evidence.follow import bests_after
from tuner.evidence.store import Store

#: Between two looks at the store's counters; a fifth of what is promised.
_EVERY_SECONDS: Final = 0.2
#: Bests read at once while catching up.
_AT_ONCE: Final = 1000
#: A snapshot that could not look for this long is no longer good for new requests (`/readyz`).
STALE_SECONDS: Final = 10.0
_log = logging.getLogger("gemmtune.follower")


class Follower:
    """Follows one store in a thread of its own.

    Attributes:
        snapshot: what answers are read from; another object after a store was replaced by a backup.
        loaded: set once the snapshot has all that the store had when the service started.
    """

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        self._tokens = -1
        self._seen_at = time.monotonic()
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self.snapshot = Snapshot()
        self.loaded = threading.Event()

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what was read stays readable."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def age_seconds(self) -> float:
        """Since the store was last asked what changed, and answered."""
        return time.monotonic() - self._seen_at

    def follow(self) -> None:
        """Takes in whatever changed until now.

        Raises:
            StoreError: the store can't be read; the snapshot stays as it is.
        """
        with self._turn:
            asked_at, changed = time.monotonic(), self._follow_tokens()
            if changed["best"] < self.snapshot.version:
                _log.warning("the store is older than what was read from it: reading it anew")
                self._catch_up(Snapshot())
            elif changed["best"] > self.snapshot.version:
                self._catch_up(self.snapshot)
            if not self._stop.is_set():
                self._seen_at = asked_at
                self.loaded.set()

    def _follow_tokens(self) -> dict[str, int]:
        changed = self._store.changed()
        if changed["token"] != self._tokens:
            self._keyring.load(self._store)
            self._tokens = changed["token"]
        return changed

    def _catch_up(self, snapshot: Snapshot) -> None:
        many = False
        while not self._stop.is_set():
            found = bests_after(self._store, snapshot.version, _AT_ONCE)
            many |= len(found) == _AT_ONCE
            for _, best in found:
                if isinstance(best, StoreError):
                    _log.error("a best is left out: %s", best)
            snapshot.take(found)
            if len(found) < _AT_ONCE:
                break
            # Reading many takes a while, and a revoked token must not wait for it.
            self._follow_tokens()
        self.snapshot = snapshot
        if many:
            # What was just read stays for good: the garbage collector need not go through it, again and again,
            # while requests wait.
            gc.collect()
            gc.freeze()

    def _run(self) -> None:
        failing = False
        while not self._stop.is_set():
            try:
                self.follow()
                failing = False
            except StoreError as error:
                if not failing:
                    _log.error("answers stay as they are: %s", error)
                failing = True
            except Exception:
                # A defect; without this thread the service would grow old in silence.
                if not failing:
                    _log.exception("answers stay as they are")
                failing = True
            self._stop.wait(_EVERY_SECONDS)
