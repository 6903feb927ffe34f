"""The application: one store, its endpoints, and what every request gets."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import best, explain, health, measurements, problems, tables
from api.access import Access
from api.auth import Keyring
from api.gate import Gate
from api.meters import Meters
from tuner.store.store import Store


def create_app(store: Store, access: Access | None = None) -> FastAPI:
    """The service on one store. The store stays the caller's to close.

    Args:
        access: who may ask; by default everybody who can reach the application, everything.
    """
    access = access or Access()
    app = FastAPI(
        title="gemmtune",
        version="1",
        description="The best proved-correct kernel configuration for a GEMM on a GPU, with its evidence.",
        # The stock pages load their scripts from elsewhere; /openapi.json is enough for every tool.
        docs_url=None,
        redoc_url=None,
    )
    app.state.store = store
    app.state.meters = Meters()
    app.state.keyring = Keyring(access.tokens)
    app.state.keyring.load(store)
    problems.install(app)
    app.add_middleware(Gate, access=access, keyring=app.state.keyring, meters=app.state.meters, shortcuts={})
    for module in (best, measurements, explain, tables, health):
        app.include_router(module.router)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with our problem schema in place of its own validation errors."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        for kind in (problems.ProblemDocument, problems.FieldError):
            schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            schemas[kind.__name__] = schema
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema
