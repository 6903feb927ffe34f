"""The bests of one device in memory: rendered answers, keys, and problems grouped by all but their extents."""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from api.answers import AnswerCompressor
from space.errors import SpaceError
from space.kind import DEFAULT_KIND, problem_from_key
from space.problem import DISTANCE_DIGITS, Problem
from tuner.answering.answers import Source
from tuner.evidence.records import Best, Removed
from tuner.tables.entries import best_of

#: Neighbours that are sorted first; answers rarely need more.
_NEAREST_FIRST: Final = 32
_FIRST_CAPACITY: Final = 64


@dataclass(frozen=True, slots=True)
class CachedBest:
    """One best.

    Attributes:
        kind: kind of the device: `cuda`, or `recorded`; a GPU's own best takes precedence over a replayed one.
        compressed: the rendered answer, compressed by `compressor`.
        start, stop: slice of the answer that holds the evidence.
        source: `measured` or `stale`; `none` if a rule forbids its config by now.
    """

    kind: str
    compressed: bytes
    compressor: AnswerCompressor
    start: int
    stop: int
    source: Source

    @property
    def answer(self) -> bytes:
        """The response to `GET /v1/best`."""
        return self.compressor.decompress(self.compressed)

    @property
    def legal(self) -> bool:
        """Whether it may be answered, and stand in a table."""
        return self.source != "none"

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
        self.extend([key], [problem.extents])

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
        unreadable: those of `held` that this version of gemmtune can't read, with the device's kind.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.held: dict[str, CachedBest | str] = {}
        self.keys: list[str] = []
        self.groups: dict[tuple[str, str], ShapeGroup] = {}
        self.unreadable: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._runs: list[list[str]] = []

    def index(self, device_kind: str, rows: Iterable[Sequence[Any]]) -> int:
        """Adds bests that are not rendered, by key, kind and extents of their problems.

        `finish_index` has to follow the last call.

        Returns:
            How many of them this version can't read.
        """
        device_kind, added = sys.intern(device_kind), list[str]()
        groups: dict[tuple[str, str], tuple[list[str], list[tuple[int, int, int]]]] = {}
        wrong = 0
        for key, kind, m, n, k in rows:
            if (known := self.held.get(key)) is not None:
                # `cuda` < `recorded`: a replay never hides a GPU's own measurement.
                self.held[key] = min(kind_of(known), device_kind)
                continue
            if kind == DEFAULT_KIND:
                head, _, tail = key.rpartition(f"{m}x{n}x{k}")
            else:
                try:
                    head, tail = problem_from_key(key).key_around_shape()
                except SpaceError:
                    wrong += 1
                    continue
            keys, extents = groups.get((head, tail)) or groups.setdefault((head, tail), ([], []))
            keys.append(key)
            extents.append((m, n, k))
            added.append(key)
            self.held[key] = device_kind
        for around, (keys, extents) in groups.items():
            self.groups.setdefault(around, ShapeGroup()).extend(keys, extents)
        self._runs.append(added)
        # Sorting a million keys at once would keep Python from everything else for a second.
        added.sort()
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._merge()
        return wrong

    def _merge(self) -> None:
        last = self._runs.pop()
        self._runs[-1] += last
        self._runs[-1].sort()  # takes two sorted runs for what they are

    def finish_index(self, version: int) -> None:
        """Ends `index`: all changes up to this one are there."""
        while len(self._runs) > 1:
            self._merge()
        self.keys, self._runs = self._runs.pop() if self._runs else [], []
        self._counts = Counter(map(kind_of, self.held.values()))
        self.version = version

    def put(self, problem: Problem, best: CachedBest, version: int) -> None:
        """Adds or replaces a best."""
        key = problem.key
        if (known := self.held.get(key)) is not None:
            if kind_of(known) < best.kind:
                return  # as in `index`
            self._counts[kind_of(known)] -= 1
        self._counts[best.kind] += 1
        self.unreadable.pop(key, None)
        self.held[key] = best
        if known is None:
            insort(self.keys, key)
            self.groups.setdefault(problem.key_around_shape(), ShapeGroup()).add(problem, key)
        self.version = version

    def remove(self, removed: Removed, version: int) -> None:
        """Drops a best; does nothing without it."""
        key = removed.problem_key
        if (known := self.held.get(key)) is not None and kind_of(known) == removed.device_kind:
            around = problem_from_key(key).key_around_shape()
            self.groups[around] = self.groups[around].without(key)
            keys = self.keys[:]
            del keys[bisect_left(keys, key)]
            self.keys = keys
            del self.held[key]
            self.unreadable.pop(key, None)
            self._counts[removed.device_kind] -= 1
            self.version = version

    def forget(self, key: str, device_kind: str, version: int) -> bool:
        """Drops the answer of a best that was replaced; the store decides what the next question gets.

        Returns:
            False if no such best is held.
        """
        if (known := self.held.get(key)) is None or kind_of(known) != device_kind:
            return False
        self.held[key] = device_kind
        self.unreadable.pop(key, None)
        self.version = version
        return True

    def kinds(self) -> dict[str, int]:
        """Number of readable bests by device kind."""
        return dict(self._counts - Counter(self.unreadable.values()))


def kind_of(held: CachedBest | str) -> str:
    """The kind of the device that a best was measured on."""
    return held if isinstance(held, str) else held.kind
