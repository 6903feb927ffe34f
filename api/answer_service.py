"""The best config for a problem: read from memory if it was measured, computed if not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from api.answer_reader import AnswerReader
from api.device_bests import CachedBest
from api.http_errors import HttpError
from api.snapshot import Snapshot
from api.snapshot_follower import SnapshotFollower
from space.devices import DEFAULT_DEVICE, find_profile
from space.kind import DEFAULT_KIND, KINDS
from space.problem import Problem
from tuner.answering.answers import Answer, ExactBests, Source, answer, known_answer
from tuner.errors import NewerContent, StoreError
from tuner.evidence.records import Best, Policy
from tuner.evidence.store import Store
from tuner.prediction.files import Choice, model_for
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
    policy: Policy


@dataclass(frozen=True, slots=True)
class _WithStore:
    """The snapshot's served bests, and the store's bests under every policy."""

    snapshot: Snapshot
    store: Store

    def best(self, problem: Problem, device: str, policy: Policy | None = None) -> Best | None:
        return self._under(policy, problem, device) if policy else self.snapshot.best(problem, device)

    def neighbours(self, problem: Problem, device: str, policy: Policy | None = None) -> Iterator[Best]:
        # One by one: an answer looks at few, of which the store may have thousands.
        for served in self.snapshot.neighbours(problem, device):
            under = self._under(policy, served.problem, device) if policy not in (None, served.policy) else None
            yield under if under and under.device_kind == served.device_kind else served

    def wrong(self, problem: Problem, device: str) -> frozenset[str]:
        return self.snapshot.wrong(problem, device)

    def _under(self, policy: Policy | None, problem: Problem, device: str) -> Best | None:
        """The store's best under a policy; like the snapshot, without what only another version reads."""
        try:
            return self.store.best(problem, device, policy)
        except NewerContent:
            return None


class AnswerService:
    """Answers from the snapshot, and from the learned models where nothing was measured.

    Args:
        models: folder of locally trained models; a device without one uses the model that ships with gemmtune.
        recordings: bests of recordings, which answer if the store lacks a problem.
        missed: called with the key and the device of each question without a measured answer.
    """

    def __init__(
        self, follower: SnapshotFollower, models: Path | None = None, recordings: ExactBests | None = None,
        missed: Callable[[str, str], None] = lambda key, device: None,
    ) -> None:  # fmt: skip
        self._follower, self._models, self._reader = follower, models, AnswerReader()
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
        return held if held.legal and required in ("any", held.source) else None

    async def _read(self, snapshot: Snapshot, key: str, device: str, required: str) -> CachedBest | None:
        try:
            held = await self._reader.read(snapshot, key, device)
        except StoreError:
            return None
        return held if held and held.legal and required in ("any", held.source) else None

    def answer(self, problem: Problem, device: str, policy: Policy | None = None) -> CachedBest | RenderedAnswer:
        """The best known config for a problem on a device; under a named policy from the store, not the snapshot."""
        if (known := self._known(problem, device, policy)) is not None:
            return known
        snapshot = self.snapshot
        if policy is None:
            versions = snapshot.version_of(device), self.model_of(device).version, snapshot.wrong(problem, device)
            computed = self._computed(problem, device, *versions)
        else:
            bests, model = _WithStore(snapshot, self._follower.store), self.model_of(device).model
            computed = _rendered(answer(bests, problem, device, policy, model, self.recordings))
        self._missed(problem.key, device)
        return computed

    def measured_answer(
        self, problem: Problem, device: str, policy: Policy | None = None, only: bool = False
    ) -> CachedBest | RenderedAnswer | None:
        """The answer that was measured with today's kernel; None without one.

        Args:
            only: under no other policy.
        """
        known = self._known(problem, device, policy)
        if known is None:
            self.count_misses([problem], device)
        if only and isinstance(known, RenderedAnswer) and known.policy is not policy:
            return None
        return known if known and known.source == "measured" else None

    def count_misses(self, problems: Iterable[Problem], device: str) -> None:
        """Counts questions that nothing measured answers, unless nobody could measure them on such a device."""
        if find_profile(device):
            for problem in problems:
                self._missed(problem.key, device)

    def _known(self, problem: Problem, device: str, policy: Policy | None) -> CachedBest | RenderedAnswer | None:
        """The answer of a best that no rule forbids, which may be stale; from the store until the snapshot has it."""
        loaded = self._follower.loaded.is_set()
        if loaded and policy is None:
            held = self.snapshot.held(problem.key, device)
            return held if held and held.legal else None
        store = self._follower.store
        found = known_answer(_WithStore(self.snapshot, store) if loaded else store, problem, device, policy)
        return _rendered(found) if found else None

    def _compute(self, problem: Problem, device: str, *_: object) -> RenderedAnswer:
        """The answer that is not measured.

        Args:
            _: what else it depends on, for the cache: versions of the device's bests and of the model, and what was
                found wrong.
        """
        model = self.model_of(device).model
        return _rendered(answer(self.snapshot, problem, device, model=model, recordings=self.recordings))

    def model_of(self, device: str) -> Choice:
        """The learned model of a device, as its file is now."""
        return model_for(device, self._models)

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


def _rendered(found: Answer) -> RenderedAnswer:
    return RenderedAnswer(canonical(document(found)), found.source, found.policy)
