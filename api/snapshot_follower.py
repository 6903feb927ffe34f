"""The snapshot follower: keeps a service's snapshot and tokens within a second of its store."""

from __future__ import annotations

import gc
import logging
import threading
import time
from typing import Final

from api.auth import TokenCache
from api.snapshot import MOST_RENDERED, Snapshot
from tuner.errors import StoreError
from tuner.evidence.store import Store

#: Interval between two polls of the store's change counters; a fifth of the promised delay.
_POLL_SECONDS: Final = 0.2
#: Bests read at a time while catching up.
_BATCH: Final = 1000
#: A store with more changes of bests is indexed at first, and rendered afterwards.
_FEW: Final = 25_000
_INDEX_ROWS: Final = 20_000
_RENDERED_AT_ONCE: Final = 100
#: A service that could not poll its store for this long is not ready (`/readyz`).
STALE_SECONDS: Final = 10.0
_log = logging.getLogger("gemmtune.follower")


class SnapshotFollower:
    """Polls one store in a thread of its own.

    Attributes:
        snapshot: the current snapshot; a new object after the store was restored from a backup.
        loaded: set once the snapshot holds everything that the store had when the service started.
    """

    def __init__(self, store: Store, token_cache: TokenCache) -> None:
        self.store = store
        self._keyring = token_cache
        self._tokens = -1
        self._seen_at = time.monotonic()
        self._stop = threading.Event()
        self._poll_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self.snapshot = Snapshot(store.served_of)
        self.loaded = threading.Event()

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stops polling; the snapshot stays readable."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def age_seconds(self) -> float:
        """Time since the last successful poll of the store."""
        return time.monotonic() - self._seen_at

    def poll(self) -> None:
        """Reads everything that changed until now.

        Raises:
            StoreError: the store can't be read; the snapshot stays as it is.
        """
        with self._poll_lock:
            asked_at, changed = time.monotonic(), self._poll_tokens()
            if changed["best"] < self.snapshot.version:
                _log.warning("the store is older than the snapshot: reading all of it again")
                self._catch_up(self._fresh(changed["best"]))
            elif changed["best"] > self.snapshot.version:
                fresh = self._fresh(changed["best"]) if self.snapshot.version == 0 else self.snapshot
                # An index takes seconds; what came meanwhile is read now.
                asked_at = time.monotonic()
                self._catch_up(fresh)
            if not self._stop.is_set():
                self._seen_at = asked_at
                self.loaded.set()

    def _fresh(self, version: int) -> Snapshot:
        """A new snapshot; of a large store, with the keys of all bests."""
        snapshot = Snapshot(self.store.served_of)
        if version <= _FEW:
            return snapshot
        for part in self.store.best_index(_INDEX_ROWS):
            if self._stop.is_set():
                return snapshot
            snapshot.index(part)
        # Bests that changed while the index was read have later numbers, and are read again.
        snapshot.finish_index(version)
        for of_device in snapshot.devices.values():
            snapshot.load(of_device.name, of_device.keys[:: max(1, len(of_device.keys) // _BATCH * 2)])
        gc.collect()
        gc.freeze()
        threading.Thread(target=self._render, args=(snapshot,), name="renderer", daemon=True).start()
        return snapshot

    def _render(self, snapshot: Snapshot) -> None:
        """Renders what fits in memory, half of the time: requests come first."""
        places = [(name, first) for name, known in snapshot.devices.items()
                  for first in range(0, len(known.keys), _RENDERED_AT_ONCE)]  # fmt: skip
        for name, first in places[: MOST_RENDERED // _RENDERED_AT_ONCE]:
            if self._stop.is_set() or (snapshot is not self.snapshot and self.loaded.is_set()):
                return
            began = time.monotonic()
            try:
                snapshot.load(name, snapshot.devices[name].keys[first : first + _RENDERED_AT_ONCE])
            except StoreError as error:
                _log.warning("answers are rendered when they are asked for: %s", error)
                return
            self._stop.wait(time.monotonic() - began)

    def _poll_tokens(self) -> dict[str, int]:
        changed = self.store.changed()
        if changed["token"] != self._tokens:
            self._keyring.load(self.store)
            self._tokens = changed["token"]
        return changed

    def _catch_up(self, snapshot: Snapshot) -> None:
        many = False
        while not self._stop.is_set():
            found = self.store.bests_after(snapshot.version, _BATCH)
            many |= len(found) == _BATCH
            for _, best in found:
                if isinstance(best, StoreError):
                    _log.error("a best is left out: %s", best)
            snapshot.apply(found)
            if len(found) < _BATCH:
                break
            # Reading many bests takes a while, and a revoked token must not stay valid until it is done.
            self._poll_tokens()
        self.snapshot = snapshot
        if many:
            # The bests stay in memory for good: exempt them from garbage collection, which would traverse them again
            # and again while requests wait.
            gc.collect()
            gc.freeze()

    def _run(self) -> None:
        failing = False
        while not self._stop.is_set():
            try:
                self.poll()
                failing = False
            except Exception as error:
                # The thread must survive even a defect, or the snapshot would silently go stale.
                if not failing:
                    _log.error("the snapshot is not updated: %s", error, exc_info=not isinstance(error, StoreError))
                failing = True
            self._stop.wait(_POLL_SECONDS)
