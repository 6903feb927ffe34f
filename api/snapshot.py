"""The snapshot: every served best in memory, already rendered, so that answers need no database.

Of a large store it holds the key of every best, and renders the answers themselves when they are first asked for or
while nothing else is done; the `MOST_RENDERED` latest stay in memory.

One thread, the snapshot follower, updates it while any number of threads read. Each update is a single assignment,
which a reader sees entirely or not at all.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote, quote_plus

import numpy as np
import orjson
from numpy.typing import NDArray

from api.answers import AnswerCompressor, dictionary_for, render
from space.errors import SpaceError
from space.problem import DISTANCE_DIGITS, Problem
from space.registry import DEFAULT_KIND, problem_from_key
from tuner.errors import StoreError
from tuner.evidence.records import Best, Policy, Removed
from tuner.tables.entries import best_of

#: Neighbours that are sorted first; answers rarely need more.
_NEAREST_FIRST: Final = 32
_FIRST_CAPACITY: Final = 64
#: Bests that are read from the store together.
_AT_ONCE: Final = 500
#: Answers in memory; each takes half a KiB.
MOST_RENDERED: Final = 100_000
#: Reads served bests of a device by their problems' keys (`Store.served_of`).
Load = Callable[[str, Sequence[str]], Sequence[Best | StoreError]]


@dataclass(frozen=True, slots=True)
class CachedBest:
    """One best.

    Attributes:
        kind: kind of the device: `cuda`, or `recorded`; a GPU's own best takes precedence over a replayed one.
        compressed: the rendered answer, compressed by `compressor`.
        start, stop: slice of the answer that holds the evidence.
        source: of every answer from here.
    """

    kind: str
    compressed: bytes
    compressor: AnswerCompressor
    start: int
    stop: int
    source: ClassVar[Literal["measured"]] = "measured"

    @property
    def answer(self) -> bytes:
        """The response to `GET /v1/best`."""
        return self.compressor.decompress(self.compressed)

    @property
    def entry(self) -> bytes:
        """The entry in the device's table."""
        return self.answer[self.start : self.stop]

    def best(self, device: str) -> Best:
        """The value from which the answer was rendered."""
        return best_of(device, orjson.loads(self.entry))


class ShapeGroup:
    """Problems that differ only in M, N and K, with the log2 of these extents."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._extents: NDArray[np.float64] = np.empty((_FIRST_CAPACITY, 3))

    def add(self, problem: Problem, key: str) -> None:
        """Adds a problem that the group does not contain yet."""
        count = len(self.keys)
        if count == len(self._extents):
            self._extents = np.concatenate((self._extents, np.empty_like(self._extents)))
        self._extents[count] = np.log2(problem.extents)
        self.keys.append(key)

    def extend(self, keys: Sequence[str], extents: Sequence[tuple[int, int, int]]) -> None:
        """Adds many problems that the group does not contain yet."""
        count = len(self.keys)
        if count + len(keys) > len(self._extents):
            room = np.empty((max(len(keys), len(self._extents)), 3))
            self._extents = np.concatenate((self._extents, room))
        self._extents[count : count + len(keys)] = np.log2(np.array(extents))
        self.keys += keys

    def without(self, key: str) -> ShapeGroup:
        """The group without one of its problems. Readers may still use this one."""
        group, place = ShapeGroup(), self.keys.index(key)
        group.keys = [*self.keys[:place], *self.keys[place + 1 :]]
        group._extents = np.concatenate((np.delete(self._extents, place, axis=0), np.empty((1, 3))))
        return group

    def by_distance(self, problem: Problem) -> Iterator[str]:
        """Keys, nearest first (`Problem.distance`); ties are ordered by key."""
        keys = self.keys[:]
        away = np.abs(self._extents[: len(keys)] - np.log2(problem.extents)).sum(axis=1)
        away = np.round(away, DISTANCE_DIGITS)
        edge = np.partition(away, _NEAREST_FIRST)[_NEAREST_FIRST] if len(keys) > _NEAREST_FIRST else np.inf
        for part in (away <= edge, away > edge):
            places = np.flatnonzero(part)
            yield from (key for _, key in sorted((float(away[place]), keys[place]) for place in places))


class DeviceBests:
    """The bests of one device model.

    Attributes:
        name: as the driver reports it.
        version: number of the last change; anything derived from an earlier version is stale.
        held: served bests by problem key; the device's kind in place of one that is not rendered.
        keys: of `held`, sorted.
        groups: problems by everything but their extents.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.held: dict[str, CachedBest | str] = {}
        self.keys: list[str] = []
        self.groups: dict[tuple[str, str], ShapeGroup] = {}

    def put(self, problem: Problem, held: CachedBest, version: int) -> None:
        """Adds or replaces a best."""
        key = problem.key
        known = self.held.get(key)
        if known is not None and _kind(known) < held.kind:
            return  # `cuda` < `recorded`: a replay never hides a GPU's own measurement
        self.held[key] = held
        if known is None:
            insort(self.keys, key)
            self.groups.setdefault(problem.key_around_shape(), ShapeGroup()).add(problem, key)
        self.version = version

    def remove(self, removed: Removed, version: int) -> None:
        """Drops a best; does nothing without it."""
        key, around = removed.problem.key, removed.problem.key_around_shape()
        if (known := self.held.get(key)) and _kind(known) == removed.device_kind:
            self.groups[around] = self.groups[around].without(key)
            self.keys = [other for other in self.keys if other != key]
            del self.held[key]
            self.version = version

    def kinds(self) -> dict[str, int]:
        """Number of bests by device kind."""
        return Counter(map(_kind, list(self.held.values())))


def _kind(held: CachedBest | str) -> str:
    return held if isinstance(held, str) else held.kind


class Snapshot:
    """The bests of all devices; implements `tuner.answering.answers.Bests`, as a store does.

    Attributes:
        version: number of the last change that it contains.
        left_out: bests that this version of gemmtune can't read.
        devices: by name; adding a device replaces the whole dict, so that readers can iterate over it.

    Args:
        load: reads bests that are not rendered; without it, all have to be.
    """

    def __init__(self, load: Load | None = None) -> None:
        self._load = load
        self._rendered: deque[tuple[DeviceBests, str]] = deque()
        self.version = 0
        self.left_out = 0
        self.devices: dict[str, DeviceBests] = {}
        self._compressor: AnswerCompressor | None = None
        self._by_spelling: dict[str, str] = {}

    @property
    def only_device(self) -> str | None:
        """The device, if there is exactly one."""
        return next(iter(self.devices)) if len(self.devices) == 1 else None

    def device_spelled(self, raw: str) -> str | None:
        """The known device whose percent-encoded name is `raw`, with spaces as `%20` or `+`."""
        return self._by_spelling.get(raw)

    def apply(self, changes: Sequence[tuple[int, Best | StoreError | Removed]]) -> None:
        """Applies changes in order. Readers may see some of them before the others."""
        rendered = [(best, *render(best)) if isinstance(best, Best) else None for _, best in changes]
        if self._compressor is None:
            self._compressor = AnswerCompressor(dictionary_for([answer[1] for answer in rendered if answer]))
        for (version, change), answer in zip(changes, rendered, strict=True):
            if isinstance(change, Removed):
                self._remove(change, version)
            elif answer:
                best, text, start, stop = answer
                compressed = self._compressor.compress(text)
                self._put(best, CachedBest(best.device_kind, compressed, self._compressor, start, stop), version)
            else:
                self.left_out += 1
            self.version = version

    def index(self, rows: Sequence[Sequence[Any]]) -> None:
        """Adds bests by their keys alone (`Store.best_index`): those of one call after those of the call before."""
        groups: dict[tuple[str, str, str], list[tuple[str, tuple[int, int, int]]]] = {}
        devices = {name: self._of_device(name) for name in {row[5] for row in rows}}
        for key, kind, m, n, k, name, device_kind in rows:
            of_device = devices[name]
            known = of_device.held.get(key)
            if known is None:
                if kind == DEFAULT_KIND:
                    head, _, tail = key.rpartition(f"{m}x{n}x{k}")
                else:
                    try:
                        head, tail = problem_from_key(key).key_around_shape()
                    except SpaceError:
                        self.left_out += 1
                        continue
                groups.setdefault((name, head, tail), []).append((key, (m, n, k)))
                of_device.keys.append(key)
            of_device.held[key] = sys.intern(min(device_kind, _kind(known)) if known else device_kind)
        for (name, head, tail), added in groups.items():
            group = devices[name].groups.setdefault((head, tail), ShapeGroup())
            group.extend([key for key, _ in added], [extents for _, extents in added])

    def finish_index(self, version: int) -> None:
        """Ends `index`: the snapshot contains all changes up to this one."""
        for of_device in self.devices.values():
            # Databases compare text by their own rules.
            of_device.keys.sort()
            of_device.version = version
        self.version = version

    def load(self, device: str, keys: Sequence[str]) -> dict[str, CachedBest]:
        """The served bests of these problems, rendered.

        Raises:
            StoreError: one is not rendered, and the store can't be read.
        """
        of_device = self.devices.get(device)
        if of_device is None:
            return {}
        there = {key: held for key in keys if (held := of_device.held.get(key)) is not None}
        found = {key: held for key, held in there.items() if not isinstance(held, str)}
        wanted = [key for key, held in there.items() if isinstance(held, str)]
        for first in range(0, len(wanted) if self._load else 0, _AT_ONCE):
            found |= self._render(of_device, wanted[first : first + _AT_ONCE])
        return found

    def _render(self, of_device: DeviceBests, keys: Sequence[str]) -> dict[str, CachedBest]:
        assert self._load is not None
        bests = [best for best in self._load(of_device.name, keys) if isinstance(best, Best)]
        texts = {best.problem.key: (best.device_kind, *render(best)) for best in bests}
        if self._compressor is None:
            self._compressor = AnswerCompressor(dictionary_for([text for _, text, _, _ in texts.values()]))
        found = {}
        for key, (kind, text, start, stop) in texts.items():
            found[key] = CachedBest(kind, self._compressor.compress(text), self._compressor, start, stop)
            # Unless a newer one has come meanwhile.
            if isinstance(of_device.held.get(key), str):
                of_device.held[key] = found[key]
                self._keep(of_device, key)
        return found

    def _keep(self, of_device: DeviceBests, key: str) -> None:
        """Counts a rendered best, and drops the oldest beyond `MOST_RENDERED`."""
        self._rendered.append((of_device, key))
        while self._load is not None and len(self._rendered) > MOST_RENDERED:
            others, oldest = self._rendered.popleft()
            if (held := others.held.get(oldest)) is not None:
                others.held[oldest] = _kind(held)

    def _of_device(self, name: str) -> DeviceBests:
        if name not in self.devices:
            self.devices = dict(sorted({**self.devices, name: DeviceBests(name)}.items()))
            self._by_spelling |= {quote(name): name, quote_plus(name): name}
        return self.devices[name]

    def _put(self, best: Best, held: CachedBest, version: int) -> None:
        of_device = self._of_device(best.device)
        of_device.put(best.problem, held, version)
        self._keep(of_device, best.problem.key)

    def rendered(self, key: str, device: str) -> CachedBest | None:
        """The served best of the problem with this key, if it is rendered; needs no database."""
        of_device = self.devices.get(device)
        held = of_device.held.get(key) if of_device else None
        return None if isinstance(held, str) else held

    def _remove(self, removed: Removed, version: int) -> None:
        if known := self.devices.get(removed.device):
            known.remove(removed, version)
            if not known.held:
                self.devices = {name: other for name, other in self.devices.items() if name != removed.device}

    def held(self, key: str, device: str) -> CachedBest | None:
        """The served best of the problem with this key.

        Raises:
            StoreError: it is not rendered, and the store can't be read.
        """
        return self.rendered(key, device) or self.load(device, [key]).get(key)

    def entries(self, device: str, keys: Sequence[str]) -> list[bytes]:
        """The entries of these bests in the device's table.

        Raises:
            StoreError: one is not rendered, and the store can't be read.
        """
        found = self.load(device, keys)
        return [found[key].entry for key in keys if key in found]

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        """The served best of one problem on a device model; bests of other policies are in the store alone."""
        held = self.held(problem.key, device)
        best = held.best(device) if held else None
        return best if best and policy in (None, best.policy) else None

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> Iterator[Best]:
        """Served bests whose problems differ from `problem` only in M, N and K, nearest first."""
        of_device = self.devices.get(device)
        group = of_device.groups.get(problem.key_around_shape()) if of_device else None
        if of_device is None or group is None:
            return
        for key in group.by_distance(problem):
            if key != problem.key and (held := self.held(key, device)):
                yield held.best(device)

    def __len__(self) -> int:
        return sum(len(device.held) for device in self.devices.values())
