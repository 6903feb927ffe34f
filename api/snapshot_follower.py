"""The snapshot follower: keeps a service's snapshot and tokens within a second of its store.

It first indexes the store: reads the keys of all bests, a hundred thousand in a second. From then on it reads what
changed, and renders answers in between, as long as all of them fit in memory.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from api.auth import TokenCache
from api.snapshot import MOST_RENDERED, Snapshot
from space.problem import Problem
from tuner.errors import StoreError
from tuner.evidence import changes
from tuner.evidence.records import Unreadable
from tuner.evidence.store import Store
from tuner.repeats import Repeats

#: Interval between two polls of the store's change counters; a fifth of the promised delay.
_POLL_SECONDS: Final = 0.2
#: Bests read at a time while catching up.
_BATCH: Final = 1000
#: Keys read at a time, and answers rendered at a time, while the index is made and after it.
_INDEX_ROWS: Final = 10_000
_RENDERED_AT_ONCE: Final = 20
#: After rendering it rests for as many times as long: requests come first.
_REST: Final = 4.0
#: Answers of a device that are rendered before the service is ready: from all over the store, enough for a good
#: dictionary, and those of the first page.
_RENDERED_AT_FIRST: Final = 300
_FIRST_PAGE: Final = 100
#: The index of a larger store is exempt from garbage collection.
_LARGE: Final = 1_000
#: Questions without a measured answer whose wrong configs are kept.
_WRONG_KEPT: Final = 4_096
#: A service that could not poll its store for this long is not ready (`/readyz`).
STALE_SECONDS: Final = 10.0
_log = logging.getLogger("gemmtune.follower")


@dataclass(slots=True)
class _Wrong:
    """What was found wrong on a problem and a device, and the version of the measurements that said so."""

    version: object = None
    configs: frozenset[str] = frozenset()


class SnapshotFollower:
    """Polls one store in a thread of its own.

    Attributes:
        snapshot: the current snapshot; a new object after the store was restored from a backup.
        loaded: set once the snapshot holds everything that the store had when the service started.
    """

    def __init__(self, store: Store, token_cache: TokenCache) -> None:
        self.store = store
        self._token_cache = token_cache
        self._changed: dict[str, int] = {}
        #: Stores that were restored since the start, and how many of them when the snapshot was indexed.
        self._restores = self._indexed_at = 0
        self._seen_at = time.monotonic()
        self._stop = threading.Event()
        self._poll_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._unrendered: Iterator[tuple[str, list[str]]] = iter(())
        self._wrong = lru_cache(_WRONG_KEPT)(lambda problem, device: _Wrong())
        self.snapshot = Snapshot(store.served_of, self.wrong)
        self.loaded = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops polling; the snapshot stays readable."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def age_seconds(self) -> float:
        """Time since the last successful poll of the store."""
        return time.monotonic() - self._seen_at

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        """Texts of the configs that were found wrong on a problem and a device model, as of the last poll; while the
        store can't be read, those that were known before: the service goes on with its answers.
        """
        known, version = self._wrong(problem, device), (self._restores, self._changed.get("measurement"))
        if known.version != version and self.age_seconds() < STALE_SECONDS:
            with suppress(StoreError):
                known.configs = self.store.wrong(problem, device)
                known.version = version
        return known.configs

    def poll(self) -> None:
        """Reads everything that changed until now.

        Raises:
            StoreError: the store can't be read; the snapshot stays as it is.
        """
        with self._poll_lock:
            asked_at, changed = time.monotonic(), self._poll_tokens()
            restores = self._restores
            other = restores != self._indexed_at or changed["best"] < self.snapshot.version
            if other:
                _log.warning("the store was restored or replaced: reading all of it again")
            if other or (changed["best"] and not self.snapshot.version):
                indexed = self._indexed(changed["best"])
                # An index takes seconds; what came meanwhile is read now.
                asked_at = time.monotonic()
                self._catch_up(indexed)
                self._indexed_at = restores
            elif changed["best"] > self.snapshot.version:
                self._catch_up(self.snapshot)
            if not self._stop.is_set():
                self._seen_at = asked_at
                self.loaded.set()

    def _indexed(self, version: int) -> Snapshot:
        """A new snapshot with the keys of all bests, and some answers.

        Args:
            version: of the store. Bests that change while they are indexed get later ones, and are read again.
        """
        snapshot = Snapshot(self.store.served_of, self.wrong)
        for part in self.store.best_index(_INDEX_ROWS):
            if self._stop.is_set():
                return snapshot
            snapshot.index(*part)
            # A revoked token must not stay valid until all is read.
            self._poll_tokens()
        snapshot.finish_index(version)
        for name, known in snapshot.devices.items():
            snapshot.load(name, known.keys[:: max(1, len(known.keys) // _RENDERED_AT_FIRST)])
            snapshot.load(name, known.keys[:_FIRST_PAGE])
        if len(snapshot) > _LARGE:
            # The index stays in memory for good, and has no cycles: exempt it from garbage collection, which would
            # traverse it again and again while requests wait.
            gc.freeze()
        self._unrendered = _parts(snapshot) if len(snapshot) <= MOST_RENDERED else iter(())
        return snapshot

    def _render_until(self, until: float) -> None:
        """Renders answers, a fifth of the time."""
        while (began := time.monotonic()) < until and (part := next(self._unrendered, None)):
            self.snapshot.load(*part)
            self._stop.wait(_REST * (time.monotonic() - began))

    def _poll_tokens(self) -> dict[str, int]:
        changed, before = self.store.changed(), self._changed
        replaced = changes.replaced(before, changed)
        if replaced or changed["token"] != before.get("token"):
            self._token_cache.load(self.store)
        self._restores += replaced
        self._changed = changed
        return changed

    def _catch_up(self, snapshot: Snapshot) -> None:
        while not self._stop.is_set():
            found = self.store.bests_after(snapshot.version, _BATCH)
            for _, best in found:
                if isinstance(best, Unreadable):
                    _log.error("a best is left out: %s", best.why)
            snapshot.apply(found)
            if len(found) < _BATCH:
                break
            # Reading many bests takes a while.
            self._poll_tokens()
        self.snapshot = snapshot

    def _run(self) -> None:
        failures = Repeats()
        while not self._stop.is_set():
            due = time.monotonic() + _POLL_SECONDS
            try:
                self.poll()
                self._render_until(due)
                failures.end()
            except Exception as error:
                # The thread must survive even a defect, or the snapshot would silently go stale.
                if failures.is_news(error):
                    _log.error("the snapshot is not updated: %s", error, exc_info=not isinstance(error, StoreError))
            self._stop.wait(due - time.monotonic())


def _parts(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    """All bests by device and keys, a few at a time."""
    for name, known in snapshot.devices.items():
        keys = known.keys[:]
        for first in range(0, len(keys), _RENDERED_AT_ONCE):
            yield name, keys[first : first + _RENDERED_AT_ONCE]
