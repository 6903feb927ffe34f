"""The snapshot: the key of every served best in memory, and the latest answers, already rendered.

An answer that is not rendered is read from the store when it is first asked for; the `MOST_RENDERED` latest stay.

One thread, the snapshot follower, updates it while any number of threads read. Each update is a single assignment,
which a reader sees entirely or not at all. Readers that render what they read from the store take turns with it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote, quote_plus

from api.answers import SAMPLES, AnswerCompressor, dictionary_for, render
from api.device_bests import CachedBest, DeviceBests, kind_of
from space.problem import Problem
from tuner.errors import StoreError
from tuner.evidence.physics import quarantined
from tuner.evidence.records import Best, Policy, Removed, Unreadable

_log = logging.getLogger("gemmtune.snapshot")
#: Bests that are read from the store together.
_AT_ONCE: Final = 500
#: Answers in memory; each takes half a KiB.
MOST_RENDERED: Final = 100_000
#: Reads served bests of a device by their problems' keys (`Store.served_of`).
Load = Callable[[str, Sequence[str]], Sequence[Best | StoreError]]
#: Reads the configs that were found wrong on a problem and a device (`Store.wrong`).
Wrong = Callable[[Problem, str], frozenset[str]]


class Snapshot:
    """The bests of all devices; implements `tuner.answering.answers.Bests`, as a store does.

    Attributes:
        version: number of the last change that it contains.
        devices: by name; adding a device replaces the whole dict, so that readers can iterate over it.

    Args:
        load: reads bests that are not rendered.
        wrong: reads which configs were found wrong.
    """

    def __init__(self, load: Load, wrong: Wrong = lambda problem, device: frozenset()) -> None:
        self._load, self._wrong = load, wrong
        self._rendered: deque[tuple[DeviceBests, str]] = deque()
        self._changes = threading.RLock()
        self.version, self._edition = 0, object()
        self.devices: dict[str, DeviceBests] = {}
        self._left_out = 0
        self._samples: list[bytes] | None = []
        self._compressor = AnswerCompressor(None)
        self._by_spelling: dict[str, str] = {}

    @property
    def only_device(self) -> str | None:
        """The device, if there is exactly one."""
        return next(iter(self.devices)) if len(self.devices) == 1 else None

    @property
    def left_out(self) -> int:
        """Bests that this version of gemmtune can't read, as far as they were looked at."""
        return self._left_out + sum(len(known.unreadable) for known in self.devices.values())

    def version_of(self, device: str) -> tuple[object, int]:
        """A value that changes with the bests of a device, for what is derived from them.

        No other snapshot has it: a store that was restored counts its changes anew.
        """
        known = self.devices.get(device)
        return self._edition, known.version if known else 0

    def device_spelled(self, raw: str) -> str | None:
        """The known device whose percent-encoded name is `raw`, with spaces as `%20` or `+`."""
        return self._by_spelling.get(raw)

    def apply(self, changes: Sequence[tuple[int, Best | Unreadable | Removed]]) -> None:
        """Applies changes in order. Readers may see some of them before the others."""
        for version, change in changes:
            with self._changes:
                if isinstance(change, Removed):
                    self._remove(change, version)
                elif isinstance(change, Best):
                    of_device = self._of_device(change.device)
                    of_device.put(change.problem, self._cached(change), version)
                    self._keep(of_device, change.problem.key)
                else:
                    known = self.devices.get(change.device)
                    if known is None or not known.forget(change.problem_key, change.device_kind, version):
                        self._left_out += 1
            self.version = version

    def index(self, device: str, device_kind: str, rows: Iterable[Sequence[Any]]) -> None:
        """Adds bests of a device by their keys alone, as `Store.best_index` reads them."""
        if quarantined(device):
            self._left_out += sum(1 for _ in rows)
        else:
            self._left_out += self._of_device(device).index(device_kind, rows)

    def finish_index(self, version: int) -> None:
        """Ends `index`: the snapshot contains all changes up to this one."""
        for of_device in self.devices.values():
            of_device.finish_index(version)
        self.version = version

    def load(self, device: str, keys: Sequence[str]) -> dict[str, CachedBest]:
        """The served bests of these problems, rendered.

        Raises:
            StoreError: one is not rendered, and the store can't be read.
        """
        of_device = self.devices.get(device)
        if of_device is None:
            return {}
        found, wanted = dict[str, CachedBest](), list[str]()
        for key, held in zip(keys, map(of_device.held.get, keys), strict=True):
            if isinstance(held, CachedBest):
                found[key] = held
            elif held is not None and key not in of_device.unreadable:
                wanted.append(key)
        wanted = list(dict.fromkeys(wanted))
        for first in range(0, len(wanted), _AT_ONCE):
            found |= self._render(of_device, wanted[first : first + _AT_ONCE])
        return found

    def _render(self, of_device: DeviceBests, keys: Sequence[str]) -> dict[str, CachedBest]:
        found = {}
        for best in self._load(of_device.name, keys):
            if isinstance(best, Best):
                found[best.problem.key] = self._cached(best)
            else:
                _log.error("a best is left out: %s", best)
        with self._changes:
            for key in keys:
                # Unless a newer one has come meanwhile.
                if isinstance(kind := of_device.held.get(key), str):
                    if key in found:
                        of_device.held[key] = found[key]
                        self._keep(of_device, key)
                    else:
                        of_device.unreadable[key] = kind
        return found

    def _cached(self, best: Best) -> CachedBest:
        text, start, stop, source = render(best)
        if (samples := self._samples) is not None:
            samples.append(text)
            if len(samples) >= SAMPLES:
                self._compressor, self._samples = AnswerCompressor(dictionary_for(samples)), None
        compressor = self._compressor
        return CachedBest(best.device_kind, compressor.compress(text), compressor, start, stop, source)

    def _keep(self, of_device: DeviceBests, key: str) -> None:
        """Counts a rendered best, and drops the oldest beyond `MOST_RENDERED`."""
        self._rendered.append((of_device, key))
        while len(self._rendered) > MOST_RENDERED:
            others, oldest = self._rendered.popleft()
            if (held := others.held.get(oldest)) is not None:
                others.held[oldest] = kind_of(held)

    def _of_device(self, name: str) -> DeviceBests:
        if name not in self.devices:
            self.devices = dict(sorted({**self.devices, name: DeviceBests(name)}.items()))
            self._by_spelling |= {quote(name): name, quote_plus(name): name}
        return self.devices[name]

    def _remove(self, removed: Removed, version: int) -> None:
        if known := self.devices.get(removed.device):
            known.remove(removed, version)
            if not known.held:
                self.devices = {name: other for name, other in self.devices.items() if name != removed.device}

    def find(self, key: str, device: str) -> CachedBest | str | None:
        """The served best of the problem with this key, or its device's kind if it is not rendered. Reads no store."""
        of_device = self.devices.get(device)
        return of_device.held.get(key) if of_device and key not in of_device.unreadable else None

    def held(self, key: str, device: str) -> CachedBest | None:
        """The served best of the problem with this key.

        Raises:
            StoreError: it is not rendered, and the store can't be read.
        """
        return self.load(device, [key]).get(key)

    def entries(self, device: str, keys: Sequence[str]) -> list[bytes]:
        """The entries of these bests in the device's table.

        Raises:
            StoreError: one is not rendered, and the store can't be read.
        """
        found = self.load(device, keys)
        return [held.entry for key in keys if (held := found.get(key)) and held.legal]

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The served best of one problem on a device model; bests of other policies are in the store alone."""
        held = self.held(problem.key, device)
        best = held.best(device) if held else None
        return best if best and policy in (None, best.policy) else None

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        """Texts of the configs that were found wrong on a problem and a device model."""
        return self._wrong(problem, device)

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> Iterator[Best]:
        """Served bests whose problems differ from `problem` only in M, N and K, nearest first.

        Args:
            policy: for `Bests`; bests of other policies are in the store alone.
        """
        of_device = self.devices.get(device)
        group = of_device.groups.get(problem.key_around_shape()) if of_device else None
        if of_device is None or group is None:
            return
        for key in group.by_distance(problem):
            if key != problem.key and (held := self.held(key, device)):
                yield held.best(device)

    def __len__(self) -> int:
        return sum(sum(device.kinds().values()) for device in self.devices.values())
