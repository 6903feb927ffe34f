"""The snapshot: every served best in memory, already rendered, so that answers need no database.

One thread, the snapshot follower, updates it while any number of threads read. Each update is a single assignment,
which a reader sees entirely or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal
from urllib.parse import quote, quote_plus

import numpy as np
import orjson
from numpy.typing import NDArray

from api.answers import AnswerCompressor, dictionary_for, render
from space.problem import DISTANCE_DIGITS, Problem
from tuner.errors import StoreError
from tuner.evidence.records import Best, Policy
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
        held: served bests by problem key.
        groups: problems by everything but their extents.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.held: dict[str, CachedBest] = {}
        self.groups: dict[tuple[str, str], ShapeGroup] = {}

    def put(self, problem: Problem, held: CachedBest, version: int) -> None:
        """Adds or replaces a best."""
        key = problem.key
        known = self.held.get(key)
        if known is not None and known.kind < held.kind:
            return  # `cuda` < `recorded`: a replay never hides a GPU's own measurement
        self.held[key] = held
        if known is None:
            self.groups.setdefault(problem.key_around_shape(), ShapeGroup()).add(problem, key)
        self.version = version

    def kinds(self) -> dict[str, int]:
        """Number of bests by device kind."""
        return Counter(held.kind for held in list(self.held.values()))


class Snapshot:
    """The bests of all devices; implements `tuner.answering.answers.Bests`, as a store does.

    Attributes:
        version: number of the last change that it contains.
        left_out: bests that this version of gemmtune can't read.
        devices: by name; adding a device replaces the whole dict, so that readers can iterate over it.
    """

    def __init__(self) -> None:
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

    def apply(self, changes: Sequence[tuple[int, Best | StoreError]]) -> None:
        """Applies changes in order. Readers may see some of them before the others."""
        rendered = [(best, *render(best)) if isinstance(best, Best) else None for _, best in changes]
        if self._compressor is None:
            self._compressor = AnswerCompressor(dictionary_for([answer[1] for answer in rendered if answer]))
        for (version, _), answer in zip(changes, rendered, strict=True):
            if answer:
                best, text, start, stop = answer
                compressed = self._compressor.compress(text)
                self._put(best, CachedBest(best.device_kind, compressed, self._compressor, start, stop), version)
            else:
                self.left_out += 1
            self.version = version

    def _put(self, best: Best, held: CachedBest, version: int) -> None:
        if best.device not in self.devices:
            self.devices = dict(sorted({**self.devices, best.device: DeviceBests(best.device)}.items()))
            self._by_spelling |= {quote(best.device): best.device, quote_plus(best.device): best.device}
        self.devices[best.device].put(best.problem, held, version)

    def held(self, key: str, device: str) -> CachedBest | None:
        """The served best of the problem with this key."""
        of_device = self.devices.get(device)
        return of_device.held.get(key) if of_device else None

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
            if key != problem.key:
                yield of_device.held[key].best(device)

    def __len__(self) -> int:
        return sum(len(device.held) for device in self.devices.values())
