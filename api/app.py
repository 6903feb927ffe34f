"""The application: one store, its endpoints, and what every request gets."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from api import (
    best,
    builds,
    campaigns,
    devices,
    explain,
    fleet,
    health,
    importance,
    measurements,
    problems,
    rounds,
    tables,
    workers,
)
from api.access import Access
from api.answerer import Answerer
from api.auth import Keyring
from api.dashboard import routes
from api.fleet_meters import FleetMeters
from api.follower import Follower
from api.gate import Gate
from api.logs import RequestLog
from api.meters import Meters
from api.tables import Views
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import TIMING, Timing

#: How long a start waits for the first reading of the store; a larger one is read on while /readyz says so.
_FIRST_READING_SECONDS: Final = 2.0
#: They are asked one after the other whose a path is: first those that a large fleet asks for all the time.
_ROUTERS: Final = (
    workers, rounds, best, tables, devices, measurements, campaigns, builds, explain, importance, health, routes,
)  # fmt: skip
#: Schemas that no endpoint's signature shows.
_SCHEMAS: Final = (problems.ProblemDocument, problems.FieldError, best.BatchIn)


def create_app(
    store: Store, access: Access | None = None, log: TextIO | None = None, models: Path | None = None,
    timing: Timing = TIMING,
) -> FastAPI:  # fmt: skip
    """The service on one store. The store stays the caller's to close.

    Args:
        access: who may ask; by default everybody who can reach the application, everything.
        log: where a line about each request goes.
        models: folder of models that were trained here; those that ship answer where it has none.
        timing: of workers and rounds; whoever sweeps the store has to go by the same one.
    """
    access = access or Access()
    app = FastAPI(
        title="gemmtune",
        version="1",
        description="The best proved-correct kernel configuration for a GEMM on a GPU, with its evidence.",
        # The stock pages load their scripts from elsewhere; /openapi.json is enough for every tool.
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    state = app.state
    state.store, state.meters, state.keyring = store, Meters(), Keyring(access.tokens)
    # Before the first request, however long reading the bests takes: a good token is never refused.
    state.keyring.load(store)
    state.follower = Follower(store, state.keyring)
    state.answerer, state.views = Answerer(state.follower, models), Views()
    #: Set when the service is told to stop: what waits for something ends its waiting.
    state.stopping = threading.Event()
    state.meters.registry.register(FleetMeters(store))
    problems.install(app)
    fleet.install(app, timing)
    builds.install(app)
    state.request_log = RequestLog(log)
    shortcuts = {"/v1/best": best.shortcut(state.answerer, state.meters)}
    app.add_middleware(
        Gate, access=access, keyring=state.keyring, meters=state.meters, log=state.request_log, shortcuts=shortcuts
    )
    for module in _ROUTERS:
        app.include_router(module.router)
    state.routes = [route for module in _ROUTERS for route in module.router.routes if isinstance(route, Route)]
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    follower: Follower = app.state.follower
    follower.start()
    follower.loaded.wait(_FIRST_READING_SECONDS)
    try:
        yield
    finally:
        app.state.stopping.set()
        follower.stop()
        app.state.request_log.close()


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with our problem schema in place of its own validation errors."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        # A parameter that is none of its kind names no path.
        for path, operations in document["paths"].items():
            for operation in operations.values() if "{" in path else ():
                operation["responses"] |= {str(status): said for status, said in problems.responses(404).items()
                                           if str(status) not in operation["responses"]}  # fmt: skip
        schemas = document["components"]["schemas"]
        for kind in _SCHEMAS:
            schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            schemas[kind.__name__] = schema
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema
