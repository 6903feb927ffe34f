"""The best config for a problem: read from memory if it was measured, computed if not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from api.answer_reader import AnswerReader
from api.answers import render
from api.device_bests import CachedBest
from api.http_errors import HttpError
from api.snapshot import Snapshot
from api.snapshot_follower import SnapshotFollower
from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from space.registry import DEFAULT_KIND, KINDS
from tuner.answering.answers import Bests, Source, answer, measured
from tuner.errors import StoreError
from tuner.evidence.records import Best, Policy
from tuner.evidence.store import Store
from tuner.prediction.files import model_for
from tuner.tables.answer_document import document
from tuner.tables.entries import canonical

#: Computed answers in the cache; each takes one to three KiB.
_CACHED_ANSWERS: Final = 4096
_REQUIRE: Final = ("any", "measured")


@dataclass(frozen=True, slots=True)
class RenderedAnswer:
    """A computed answer that is ready to send.

    Attributes:
        answer: canonical JSON of `schemas.BestOut`.
    """

    answer: bytes
    source: Source


@dataclass(frozen=True, slots=True)
class _WithStore:
    """The snapshot's served bests, and the store's bests under every policy."""

    snapshot: Snapshot
    store: Store

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        if policy is not None:
            return self.store.best(problem, device, policy)
        return self.snapshot.best(problem, device)

    def neighbours(self, problem: Problem, device: str) -> Iterator[Best]:
        return self.snapshot.neighbours(problem, device)


class AnswerService:
    """Answers from the snapshot, and from the learned models where nothing was measured.

    Args:
        models: folder of locally trained models; a device without one uses the model that ships with gemmtune.
        recordings: bests of recordings, which answer if the store lacks a problem.
        missed: called with the key and the device of each question without a measured answer.
    """

    def __init__(
        self, follower: SnapshotFollower, models: Path | None = None, recordings: Bests | None = None,
        missed: Callable[[str, str], None] = lambda key, device: None,
    ) -> None:  # fmt: skip
        self._follower, self.models, self._reader = follower, models, AnswerReader()
        self.recordings, self._missed = recordings, missed
        self._computed = lru_cache(_CACHED_ANSWERS)(self._compute)

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot.

        Raises:
            HttpError: 503, the service has just started and has not read its store yet.
        """
        if not self._follower.loaded.is_set():
            detail = "the service is still reading its store: try again in a second"
            raise HttpError(503, "starting", detail, {"Retry-After": "1"})
        return self._follower.snapshot

    def measured(self, query: bytes) -> CachedBest | Callable[[], Awaitable[CachedBest | None]] | None:
        """The answer to the query string of `GET /v1/best`, if the query is plainly spelled and the problem measured.

        If the answer is not rendered, a call that reads it. None means only that the framework has to handle the
        request: the spelling is unusual, the query is wrong, the problem was not measured, or the store can't be read.
        No validation is needed here: if the parts of a query form the key of a measured problem, every part is valid.
        """
        try:
            parts = query.decode("ascii").split("&")
            given = dict([part.split("=") for part in parts])
            if len(given) != len(parts):
                return None
            kind = KINDS[given.pop("kind", DEFAULT_KIND)]
        except (ValueError, KeyError):
            return None
        device, required = given.pop("device", None), given.pop("require", "any")
        key = kind.key_of(given)
        if key is None or required not in _REQUIRE or not self._follower.loaded.is_set():
            return None
        snapshot = self._follower.snapshot
        known = snapshot.only_device if device is None else snapshot.device_spelled(device)
        held = snapshot.find(key, known) if known else None
        if known is None or held is None:
            return None
        if isinstance(held, str):
            return partial(self._read, snapshot, key, known, required)
        return held if required in ("any", held.source) else None

    async def _read(self, snapshot: Snapshot, key: str, device: str, required: str) -> CachedBest | None:
        try:
            held = await self._reader.read(snapshot, key, device)
        except StoreError:
            return None
        return held if held and required in ("any", held.source) else None

    def answer(self, problem: Problem, device: str, policy: Policy | None = None) -> CachedBest | RenderedAnswer:
        """The best known config for a problem on a device; under a named policy from the store, not the snapshot."""
        if not self._follower.loaded.is_set() and (best := self._stored(problem, device, policy)):
            rendered = render(best)
            return RenderedAnswer(rendered.text, rendered.source)
        snapshot = self.snapshot
        if policy is not None:
            model = model_for(device, self.models).model
            found = answer(_WithStore(snapshot, self._follower.store), problem, device, policy, model, self.recordings)
            if found.source != "measured":
                self._missed(problem.key, device)
            return RenderedAnswer(canonical(document(found)), found.source)
        held = snapshot.held(problem.key, device)
        if held is not None:
            return held
        known = snapshot.devices.get(device)
        computed = self._computed(problem, device, known.version if known else 0)
        if computed.source != "measured":
            self._missed(problem.key, device)
        return computed

    def is_measured(self, problem: Problem, device: str) -> bool:
        """Whether the store serves a best of the problem that today's kernel still matches."""
        if not self._follower.loaded.is_set():
            best = self._stored(problem, device, None)
            return best is not None and measured(best).source == "measured"
        held = self.snapshot.held(problem.key, device)
        return held is not None and held.source == "measured"

    def _stored(self, problem: Problem, device: str, policy: Policy | None) -> Best | None:
        """The store's best, until the snapshot has it."""
        if policy is not None:
            return self._follower.store.best(problem, device, policy)
        found = self._follower.store.served_of(device, [problem.key])
        return next((best for best in reversed(found) if isinstance(best, Best)), None)

    def _compute(self, problem: Problem, device: str, version: int) -> RenderedAnswer:
        """The answer that is not measured.

        Args:
            version: of the device's bests; a cached answer of an earlier one is stale.
        """
        found = answer(self.snapshot, problem, device, model=model_for(device, self.models).model,
                       recordings=self.recordings)  # fmt: skip
        return RenderedAnswer(canonical(document(found)), found.source)

    def device(self, name: str | None) -> str:
        """The device of a request: the one it names, else the only one in the store, else the H200.

        Raises:
            HttpError: 422, the request names none and the store has several.
        """
        if name is not None:
            return name
        loaded = self._follower.loaded.is_set()
        names = list(self.snapshot.devices) if loaded else sorted({name for name, _ in self._follower.store.devices()})
        if len(names) > 1:
            raise HttpError(422, "device-needed", f"the store has {', '.join(names)}: choose one with device=…")
        return names[0] if names else DEFAULT_DEVICE
