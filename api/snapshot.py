"""The snapshot: every best in memory, rendered, so that reading asks no database.

One thread changes it (see `api.follower`); any number reads it meanwhile. Each change is one assignment that
readers see or don't.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, quote_plus

import numpy as np
from numpy.typing import NDArray

from api.answers import Packer, Rendered, evidence_of, render
from space.problem import Problem
from tuner.errors import StoreError
from tuner.evidence.distance import DIGITS
from tuner.evidence.records import Best, Policy

#: Neighbours that are put in order first; hardly any answer needs more.
_NEAREST_FIRST: Final = 32
_FIRST_ROOM: Final = 64


@dataclass(frozen=True, slots=True)
class Held:
    """One best.

    Attributes:
        kind: of the device: a GPU's own best stands before a replayed one.
        packed: the answer that it is (see `api.answers`), by `packer`.
        start, stop: where the evidence stands in the answer.
    """

    kind: str
    packed: bytes
    packer: Packer
    start: int
    stop: int

    @property
    def answer(self) -> bytes:
        """What `GET /v1/best` says."""
        return self.packer.unpack(self.packed)

    @property
    def entry(self) -> bytes:
        """What a table says."""
        return self.answer[self.start : self.stop]

    def best(self, device: str) -> Best:
        """The value that all of it was made of."""
        return evidence_of(device, Rendered(self.answer, self.start, self.stop))


class Group:
    """Problems that differ in their extents alone, with log2 of M, N and K."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._extents: NDArray[np.float64] = np.empty((_FIRST_ROOM, 3))

    def add(self, problem: Problem, key: str) -> None:
        """One problem, once."""
        count = len(self.keys)
        if count == len(self._extents):
            self._extents = np.concatenate((self._extents, np.empty_like(self._extents)))
        self._extents[count] = np.log2((problem.m, problem.n, problem.k))
        self.keys.append(key)

    def by_distance(self, problem: Problem) -> Iterator[str]:
        """Keys, nearest first (`tuner.evidence.distance`); equally near ones in order of their keys."""
        keys = self.keys[:]
        away = np.abs(self._extents[: len(keys)] - np.log2((problem.m, problem.n, problem.k))).sum(axis=1)
        away = np.round(away, DIGITS)
        first = np.arange(len(keys))
        if len(keys) > _NEAREST_FIRST:
            edge = np.partition(away, _NEAREST_FIRST)[_NEAREST_FIRST]
            first = np.flatnonzero(away <= edge)
            yield from sorted_by(away, keys, first)
            first = np.flatnonzero(away > edge)
        yield from sorted_by(away, keys, first)


def sorted_by(away: NDArray[np.float64], keys: list[str], places: NDArray[np.intp]) -> list[str]:
    """The keys at `places`, by distance and then by key."""
    return [key for _, key in sorted((float(away[place]), keys[place]) for place in places)]


class DeviceBests:
    """What is known of one device model.

    Attributes:
        name: as the driver names it.
        version: number of the last change; whatever was derived from an older one is out of date.
        held: by policy and problem key.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.held: dict[Policy, dict[str, Held]] = {}
        self.groups: dict[str, Group] = {}

    def put(self, problem: Problem, policy: Policy, held: Held, version: int) -> None:
        """A best is there, or replaced."""
        of_policy, key = self.held.setdefault(policy, {}), problem.key
        known = of_policy.get(key)
        if known is not None and known.kind < held.kind:
            return  # `cuda` < `recorded`: a replay never hides what a GPU measured
        of_policy[key] = held
        if known is None and policy is Policy.COLD_GRAPH:
            self.groups.setdefault(group_of(problem), Group()).add(problem, key)
        self.version = version

    def kinds(self) -> dict[str, int]:
        """Bests by kind of device."""
        counts: dict[str, int] = {}
        for of_policy in list(self.held.values()):
            for held in list(of_policy.values()):
                counts[held.kind] = counts.get(held.kind, 0) + 1
        return counts


class Snapshot:
    """All devices. Gives the answers that `tuner.answering.answers` asks a store for.

    Attributes:
        version: number of the last change of a best that is in it.
        left_out: bests that this version of gemmtune could not read.
        devices: by name; a new one replaces the whole dict, so that readers may go through it.
    """

    def __init__(self) -> None:
        self.version = 0
        self.left_out = 0
        self.devices: dict[str, DeviceBests] = {}
        self._packer: Packer | None = None
        self._spelled: dict[str, str] = {}

    @property
    def only_device(self) -> str | None:
        """The device, if there is just one."""
        return next(iter(self.devices)) if len(self.devices) == 1 else None

    def spelled(self, raw: str) -> str | None:
        """The known device that a query spells `raw`, with its spaces as `%20` or `+`."""
        return self._spelled.get(raw)

    def take(self, changes: Sequence[tuple[int, Best | StoreError]]) -> None:
        """Takes changes in, in their order. Readers may see some of them before the others."""
        rendered = [render(best) if isinstance(best, Best) else None for _, best in changes]
        if self._packer is None:
            self._packer = Packer([answer.text for answer in rendered if answer])
        for (version, best), answer in zip(changes, rendered, strict=True):
            if answer is not None and isinstance(best, Best):
                self._put(best, answer, version, self._packer)
            else:
                self.left_out += 1
            self.version = version

    def _put(self, best: Best, answer: Rendered, version: int, packer: Packer) -> None:
        if best.device not in self.devices:
            self.devices = dict(sorted({**self.devices, best.device: DeviceBests(best.device)}.items()))
            self._spelled |= {quote(best.device): best.device, quote_plus(best.device): best.device}
        held = Held(best.device_kind, packer.pack(answer.text), packer, answer.start, answer.stop)
        self.devices[best.device].put(best.problem, best.winner.measurement.policy, held, version)

    def held(self, key: str, device: str, policy: Policy = Policy.COLD_GRAPH) -> Held | None:
        """The best of the problem with this key."""
        of_device = self.devices.get(device)
        return of_device.held.get(policy, {}).get(key) if of_device else None

    def best(self, problem: Problem, device: str, policy: Policy) -> Best | None:
        """The best of one problem on a device model."""
        held = self.held(problem.key, device, policy)
        return held.best(device) if held else None

    def neighbours(self, problem: Problem, device: str) -> Iterator[Best]:
        """Bests whose problems differ from `problem` in their extents alone, nearest first."""
        of_device = self.devices.get(device)
        group = of_device.groups.get(group_of(problem)) if of_device else None
        if of_device is None or group is None:
            return
        of_policy = of_device.held[Policy.COLD_GRAPH]
        for key in group.by_distance(problem):
            if key != problem.key:
                yield of_policy[key].best(device)

    def __len__(self) -> int:
        return sum(len(of_policy) for device in self.devices.values() for of_policy in device.held.values())


def group_of(problem: Problem) -> str:
    """What problems that differ in their extents alone have in common."""
    head, _, tail = problem.key.rpartition(problem.shape)
    return head + tail
