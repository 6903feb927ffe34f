"""What views share: a bounded cache of rendered answers, and a limit on how many are made at once."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Annotated, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel

from api.answer_service import AnswerService
from api.clients import watched
from api.concurrency import ConcurrencyLimit, FairLimit, SharedCalls
from api.encoding import Rendered
from api.snapshot_follower import SnapshotFollower
from api.views.hub import EventHub
from api.views.written import WrittenColumns
from tuner.errors import StoreError
from tuner.evidence import revocations
from tuner.evidence.store import Store
from tuner.views.bests import MOST_DEVICES, BestColumns, DeviceColumns
from tuner.views.feed import Feed
from tuner.views.funnel import Step
from tuner.views.measurements import MeasurementColumns
from tuner.views.rounds import ProgressBoard

T = TypeVar("T")

#: Memory for rendered views, and what one takes beside its bodies.
MOST_BYTES: Final = 64 * 2**20
_VIEW_BYTES: Final = 2**10
#: Views that are made at once: each occupies Python, which answers of /v1/best need too.
CONCURRENT_VIEWS: Final = 2
#: The columns of a store with at most this many bests are made before the service is ready, in half a second.
MOST_WARMED: Final = 20_000
#: Longer bodies are never compressed on the event loop.
_MOST_INLINE: Final = 2**15
#: Between two looks whether the service stops.
_POLL_SECONDS: Final = 0.1
_log = logging.getLogger("gemmtune.views")


class Kept:
    """Rendered views, least recently used ones dropped first.

    Args:
        most_bytes: of all together.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        #: Version, view and its bytes.
        self._held: OrderedDict[Hashable, tuple[object, Rendered, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, version: object, make: Callable[[], Any]) -> Rendered:
        """The view of this version; made once, however many ask for it at the same time.

        Args:
            make: returns the JSON document, or what is rendered already.
        """
        with self._lock:
            if found := self._current(key, version):
                return found
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if found := self._current(key, version):
                    return found
            try:
                made = make()
                rendered = made if isinstance(made, Rendered) else Rendered.of(made)
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._hold(key, version, rendered)
            return rendered

    def _current(self, key: Hashable, version: object) -> Rendered | None:
        found = self._held.get(key)
        if found is None or found[0] != version:
            return None
        self._hold(key, version, found[1])
        return found[1]

    def _hold(self, key: Hashable, version: object, rendered: Rendered) -> None:
        """Makes a view the last to be dropped, and counts the encodings that it has by now."""
        _, _, before = self._held.pop(key, (None, None, 0))
        size = rendered.bytes_held + _VIEW_BYTES
        self._held[key] = version, rendered, size
        self._bytes += size - before
        while self._bytes > self._most and len(self._held) > 1:
            _, (_, _, dropped) = self._held.popitem(last=False)
            self._bytes -= dropped


class Views:
    """The views of one store.

    Attributes:
        demo: the store is a demonstration's.
        progress: of running rounds.
        counts: one process at a time counts legal configs; `counted` are its results.
        funnels: first steps of funnels, by problem, device, and whether legal configs are counted.
        warmed: set once `warm` has ended.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.kept = store, Kept()
        self.best_columns, self.measurement_columns = BestColumns(store), MeasurementColumns(store)
        self._written = WeakKeyDictionary[DeviceColumns, dict[str | None, WrittenColumns]]()
        self.demo, self.progress = False, ProgressBoard()
        self.counts, self.counted = FairLimit(1), dict[tuple[str, str, str | None], dict[str, Any]]()
        self.funnels = dict[tuple[str, str, bool], tuple[Step, ...]]()
        self.warmed = threading.Event()
        self._limit, self._slow, self._shared = ConcurrencyLimit(CONCURRENT_VIEWS), FairLimit(1), SharedCalls()

    def warm(self, follower: SnapshotFollower, stopping: threading.Event) -> None:
        """Makes the columns of a store that is not large, as soon as its bests are indexed."""
        while not follower.loaded.wait(_POLL_SECONDS):
            if stopping.is_set():
                return
        snapshot = follower.snapshot
        try:
            if len(snapshot) <= MOST_WARMED:
                largest = sorted(snapshot.devices, key=lambda name: -len(snapshot.devices[name].held))
                for device in largest[:MOST_DEVICES]:
                    self.bests(device, None)
                self.measurement_columns.warm()
        except Exception as error:
            _log.error("the columns are not made yet: %s", error, exc_info=not isinstance(error, StoreError))
        self.warmed.set()

    def bests(self, device: str, policy: str | None, after: int = 0) -> Rendered | None:
        """`GET /v1/bests:columns`; None without a best."""
        known = self.best_columns.of(device)
        if not len(known):
            return None
        if after:
            # All open pages ask for what the last commit changed: one document is kept, not one for each `after`.
            return self.kept.get(
                ("bests since", device, policy), (known.state, after),
                lambda: known.since(after, policy) or self._all_bests(known, device, policy),
            )  # fmt: skip
        return self._all_bests(known, device, policy)

    def _all_bests(self, known: DeviceColumns, device: str, policy: str | None) -> Rendered:
        written = self._written.setdefault(known, {}).setdefault(policy, WrittenColumns())
        return self.kept.get(("bests", device, policy), known.state, lambda: written.within(known.document(policy)))

    async def device(self, request: Request, name: str | None) -> str:
        """The device of a request, as `AnswerService.device` has it: until the service has read its store, from there.

        Raises:
            HttpError: 422, the request names none and the store has several.
        """
        service: AnswerService = request.app.state.answer_service
        if name is not None or request.app.state.follower.loaded.is_set():
            return service.device(name)
        return await self.run(partial(service.device, name))

    def revocations(self) -> int:
        """Number of the last revocation, which no counter of changes shows."""
        return revocations.newest(self.store)

    async def keep(
        self, request: Request, key: Hashable, document: Callable[[], Any],
        version: Callable[[], object] = lambda: None, schema: type[BaseModel] | None = None, slow: bool = False,
    ) -> Response:  # fmt: skip
        """The response to a request for a view that is made once per version.

        Args:
            key: of the view; no other view has it.
            document: makes the view, in a thread: a JSON document, a record of `schema`, or a `Rendered`.
            version: changes whenever the view does; read in the same thread. Without it, the view never changes.
            schema: turns a record of the tuner into JSON.
            slow: it may take seconds; see `run_slow`.
        """

        def make() -> Any:  # noqa: ANN401  (any JSON value)
            made = document()
            return schema.model_validate(made, from_attributes=True).model_dump(mode="json") if schema else made

        return await self.answer(request, key, lambda: self.kept.get(key, version(), make), slow)

    async def answer(
        self, request: Request, key: Hashable, make: Callable[[], Rendered], slow: bool = False
    ) -> Response:
        """The response to a request for a view that is made each time, or that keeps itself; as `keep`."""
        if slow:
            rendered = await self._slow_answer(request, key, make)
        else:
            rendered = await self._shared.run(key, lambda _: self.run(make))
        if rendered.length > _MOST_INLINE:
            # Its client may want an encoding that is not made yet.
            response = partial(rendered.response, request)
            return await (self.run_slow(request, response) if slow else self.run(response))
        return rendered.response(request)

    async def _slow_answer(self, request: Request, key: Hashable, make: Callable[[], Rendered]) -> Rendered:
        # Nobody shares another caller's call: it waits for all that this caller asked before.
        who: str = request.state.who
        async with watched(request) as wanted:
            return await self._shared.run((key, who), lambda anybody: self._slow.run(who, make, anybody), wanted)

    async def run(self, call: Callable[[], T]) -> T:
        """Runs a call in a thread, when it is its turn."""
        return await self._limit.run(call)

    async def run_slow(self, request: Request, call: Callable[[], T]) -> T:
        """Runs a call that may take seconds: such calls wait for each other, callers in turn, and nobody for them.

        It is left out if the client has left when its turn comes.
        """
        async with watched(request) as wanted:
            return await self._slow.run(request.state.who, call, wanted)


def install(app: FastAPI) -> None:
    """Puts what views share into the app's state."""
    state = app.state
    state.shown = Views(state.store)
    follower: SnapshotFollower = state.follower

    def feed() -> Feed:
        return Feed(state.store, state.workers, state.shown.progress, follower.poll)

    state.hub = EventHub(feed, state.stopping)


async def _views(request: Request) -> object:
    return request.app.state.shown


ViewsDependency = Annotated[Views, Depends(_views)]
