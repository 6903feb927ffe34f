"""The application: one store, its endpoints, and what every request gets."""

from __future__ import annotations

import secrets
import string
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from api import best, explain, health, measurements, problems, tables
from tuner.store.store import Store

#: No body that this API takes is longer.
MOST_BODY_BYTES: Final = 2**20
_ID_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "-_.")

Next = Callable[[Request], Awaitable[Response]]


def create_app(store: Store) -> FastAPI:
    """The service on one store. The store stays the caller's to close."""
    app = FastAPI(
        title="gemmtune",
        version="1",
        description="The best proved-correct kernel configuration for a GEMM on a GPU, with its evidence.",
        # The stock pages load their scripts from elsewhere; /openapi.json is enough for every tool.
        docs_url=None,
        redoc_url=None,
    )
    app.state.store = store
    problems.install(app)
    app.middleware("http")(guard)
    for module in (best, measurements, explain, tables, health):
        app.include_router(module.router)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


async def guard(request: Request, call_next: Next) -> Response:
    """A request id, a limit on bodies, and headers that keep browsers strict."""
    given = request.headers.get("x-request-id", "")
    valid = 0 < len(given) <= 100 and set(given) <= _ID_CHARACTERS
    request.state.request_id = given if valid else secrets.token_hex(8)
    length = request.headers.get("content-length", "0")
    if request.method in ("POST", "PUT", "PATCH") and (not length.isdigit() or int(length) > MOST_BODY_BYTES):
        detail = f"the body is longer than {MOST_BODY_BYTES:,} bytes, or its length is not told: send less"
        response: Response = problems.answer(request, 413, "body-too-large", detail)
    else:
        response = await call_next(request)
    response.headers["X-Request-Id"] = request.state.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


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
