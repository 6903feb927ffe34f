"""The FastAPI application: endpoints, middleware and shared state on one store."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TextIO

from anyio import to_thread
from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from api import (
    best,
    builds,
    campaigns,
    description,
    devices,
    explain,
    fleet,
    health,
    history,
    http_errors,
    importance,
    measurements,
    misses,
    not_found,
    rounds,
    tables,
    workers,
)
from api.access import AccessPolicy
from api.answer_service import AnswerService
from api.auth import TokenCache
from api.concurrency import CALLER_BATCHES, CALLER_THREADS, CONCURRENT_BATCHES, CallerSlots, ConcurrencyLimit
from api.dashboard import routes
from api.dashboard.assets import assets
from api.description import Description
from api.fleet_metrics import FleetMetrics
from api.logs import RequestLog
from api.metrics import Metrics
from api.middleware import RequestMiddleware
from api.miss_counter import MissCounter
from api.snapshot_follower import SnapshotFollower
from api.streams import EventStreams
from api.table_formats import TableFormats
from api.tables import TableViews
from api.views import VIEWS, kept
from api.write_probe import WriteProbe
from tuner.answering.answers import ExactBests
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING, Timing

#: Start-up waits this long for the first read of the store; a larger store loads while /readyz answers 503.
_FIRST_READING_SECONDS: Final = 2.0
#: Routes are matched in this order: those that a large fleet requests all the time come first.
_ROUTERS: Final = (
    workers, rounds, best, history, tables, devices, measurements, campaigns, builds, explain, importance, misses,
    *VIEWS, health, description, routes,
)  # fmt: skip


class _Service(FastAPI):
    """FastAPI with one middleware around it, ours, which answers from memory before anything else runs.

    FastAPI's own are left out: ours limits bodies and answers for unexpected exceptions.
    """

    around: Callable[[ASGIApp], RequestMiddleware]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.middleware_stack is not None:
            # As FastAPI's own, without looking for telemetry at every request.
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> RequestMiddleware:
        return self.around(ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers))


def create_app(
    store: Store, access: AccessPolicy | None = None, log: TextIO | None = None, models: Path | None = None,
    timing: Timing = TIMING, recordings: ExactBests | None = None,
) -> FastAPI:  # fmt: skip
    """The service on one store. The caller closes the store.

    Args:
        access: who may call; by default anyone who can reach the application may do anything.
        log: stream for one line per request.
        models: folder of locally trained models; a device without one uses the model that ships with gemmtune.
        timing: intervals of workers and rounds; whatever sweeps the store has to use the same ones.
        recordings: bests of recordings, which answer if the store lacks a problem.
    """
    access = access or AccessPolicy()
    app = _Service(
        title="gemmtune",
        version="1",
        description="The best proved-correct kernel configuration for a GEMM on a GPU, with its evidence.",
        # The stock pages load scripts from other hosts, and the stock document is made and written on the event loop:
        # every tool can use ours.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would name the scheme and the host that this process sees: behind a TLS proxy clients would follow
        # it in the clear, token included, and any Host would send them anywhere.
        redirect_slashes=False,
        lifespan=_lifespan,
        # Looking for an exporter at every request costs as much as reading an answer; /metrics has ours.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    state = app.state
    state.store, state.metrics, state.token_cache = store, Metrics(), TokenCache(access.tokens)
    # Before the first request, however long the snapshot takes to load: a valid token is never refused.
    state.token_cache.load(store)
    state.follower, state.write_probe = SnapshotFollower(store, state.token_cache), WriteProbe(store)
    state.misses, state.table_formats = MissCounter(store), TableFormats()
    state.answer_service = AnswerService(state.follower, models, recordings, state.misses.count)
    state.table_views = TableViews()
    state.streams, state.batch_limit = EventStreams(), ConcurrencyLimit(CONCURRENT_BATCHES)
    state.batch_slots, state.thread_slots = CallerSlots(CALLER_BATCHES), CallerSlots(CALLER_THREADS)
    #: Set when the service is told to stop: long polls and event streams then end.
    state.stopping = threading.Event()
    state.metrics.registry.register(FleetMetrics(store))
    http_errors.install(app)
    not_found.install(app)
    fleet.install(app, timing)
    kept.install(app)
    state.request_log = RequestLog(log)
    fast_paths = {"/v1/best": best.fast_path(state.answer_service, state.metrics)}
    app.around = lambda inner: RequestMiddleware(
        inner, access, state.token_cache, state.metrics, state.request_log, fast_paths
    )
    # The routes themselves: `include_router` would read every signature again, in a tenth of a second for each service.
    app.router.routes.extend(route for module in _ROUTERS for route in module.router.routes)
    app.middleware_stack = app.build_middleware_stack()
    state.answer_now = app.middleware_stack.answer_now
    state.routes = [route for module in _ROUTERS for route in module.router.routes if isinstance(route, Route)]
    state.description = Description(app)
    app.openapi = state.description.document  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    follower: SnapshotFollower = app.state.follower
    follower.start()
    app.state.write_probe.start()
    app.state.misses.start()
    # Compresses the pages' files, which takes a tenth of a second: no request has to wait for it.
    assets()
    shown: kept.Views = app.state.shown
    warming = threading.Thread(target=shown.warm, args=(follower, app.state.stopping), name="warm-views")
    warming.start()
    # In a thread, as most requests: what the first call in one imports is then there, too.
    await to_thread.run_sync(shown.warmed.wait, _FIRST_READING_SECONDS)
    try:
        yield
    finally:
        app.state.stopping.set()
        warming.join()
        await app.state.hub.close()
        app.state.write_probe.stop()
        app.state.misses.stop()
        follower.stop()
        app.state.request_log.close()
