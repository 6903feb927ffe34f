"""HTTP errors as application/problem+json (RFC 9457); each says what to do.

`type` names a row of `docs/http-errors.md`; `instance` is the request id, which `X-Request-Id` also carries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from space.errors import SpaceError
from tuner.errors import StoreError, UnknownDevice

MEDIA_TYPE: Final = "application/problem+json"
#: Error types of requests that the framework itself refuses, by status.
_FRAMEWORK: Final = {
    400: "malformed-body", 404: "no-such-path", 405: "method-not-allowed", 413: "body-too-large",
}  # fmt: skip
_log = logging.getLogger("gemmtune.api")


class FieldError(BaseModel):
    """One invalid field."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a query parameter")
    detail: str


class ProblemDocument(BaseModel):
    """The body of every error response (RFC 9457 problem details)."""

    type: str = Field(description="URL of the description of this type of error")
    title: str
    status: int
    detail: str = Field(description="one sentence: the value, the rule, the fix")
    instance: str = Field(description="request id")
    errors: list[FieldError] = Field(default_factory=list)


class HttpError(Exception):
    """An expected failure of a request.

    Attributes:
        kind: last part of the error's `type`, as in `/problems/bad-input`.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}
        self.errors = errors


#: Statuses that the middleware or any endpoint may return on every path.
_ALWAYS: Final = (400, 401, 403, 413, 414, 421, 422, 429, 500, 503)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """An endpoint's error responses for OpenAPI: `statuses`, and those that every endpoint has."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, *_ALWAYS})
    }


def install(app: FastAPI) -> None:
    """Registers handlers that turn every failure of `app` into an error document."""

    @app.exception_handler(HttpError)
    async def expected(request: Request, error: HttpError) -> JSONResponse:
        return error_response(request, error.status, error.kind, error.detail, error.errors, error.headers)

    @app.exception_handler(SpaceError)
    async def bad_input(request: Request, error: SpaceError) -> JSONResponse:
        return error_response(request, 422, "bad-input", str(error))

    @app.exception_handler(StoreError)
    async def no_store(request: Request, error: StoreError) -> JSONResponse:
        _log.error("store: %s", error)
        return error_response(request, 503, "store-unavailable", str(error))

    @app.exception_handler(UnknownDevice)
    async def no_device(request: Request, error: UnknownDevice) -> JSONResponse:
        return error_response(request, 404, "unknown-device", str(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [
            FieldError(pointer=_pointer(entry["loc"]), detail=_sentence(request, entry)) for entry in error.errors()
        ]
        first = errors[0]
        detail = f"{first.pointer}: {first.detail}; see /openapi.json for the schema"
        return error_response(request, 422, "malformed-request", detail, errors)

    @app.exception_handler(HTTPException)
    async def by_framework(request: Request, error: HTTPException) -> JSONResponse:
        kind = _FRAMEWORK.get(error.status_code, "refused")
        detail = f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists all endpoints"
        headers = {**(error.headers or {}), **({"Allow": _allowed(request)} if error.status_code == 405 else {})}
        return error_response(request, error.status_code, kind, detail, headers=headers)


def error_response(
    request: Request,
    status: int,
    kind: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error response to `request`."""
    return error_document(status, kind, detail, str(getattr(request.state, "request_id", "")), errors, headers)


def error_document(
    status: int,
    kind: str,
    detail: str,
    instance: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error response, for callers that have a request id but no `Request`."""
    content = ProblemDocument(
        type=f"/problems/{kind}",
        title=kind.replace("-", " "),
        status=status,
        detail=detail,
        instance=instance,
        errors=list(errors),
    )
    return JSONResponse(content.model_dump(), status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """The `Link` header of a page with a successor (RFC 8288); no header on the last page."""
    if cursor is None:
        return {}
    url = request.url.include_query_params(cursor=cursor)
    return {"Link": f'<{url.path}?{url.query}>; rel="next"'}


def _allowed(request: Request) -> str:
    """All methods of a path; the framework lists those of the first matching route only."""
    scope = {name: request.scope[name] for name in ("type", "method", "path", "headers")}
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= route.methods
    return ", ".join(sorted(found))


def _sentence(request: Request, entry: Mapping[str, Any]) -> str:
    """What is wrong with a field, with the nearest known one if it is unknown."""
    if entry["type"] != "extra_forbidden":
        return str(entry["msg"])
    *path, name = entry["loc"]
    known = _known_fields(request, path)
    if near := get_close_matches(str(name), known, n=1):
        return f"no such field: the nearest is {near[0]}"
    return "no such field" + (f": use one of {', '.join(known)}" if known else "")


def _known_fields(request: Request, path: Sequence[int | str]) -> list[str]:
    """The fields at one place of a request, from the OpenAPI document; none for a path that it leaves out."""
    described = request.app.openapi()
    operation = described["paths"].get(request.scope["route"].path_format, {}).get(request.method.lower(), {})
    where, *inner = path
    if where != "body":
        return [each["name"] for each in operation.get("parameters", ()) if each["in"] == where]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    for part in (None, *inner):
        if part is not None:
            schema = schema["items"] if isinstance(part, int) else schema["properties"][part]
        for choice in (schema, *schema.get("anyOf", ())):
            if "$ref" in choice:
                schema = described["components"]["schemas"][choice["$ref"].rpartition("/")[2]]
    return list(schema.get("properties", ()))


def _pointer(location: tuple[int | str, ...]) -> str:
    where, *path = location
    if where == "body":
        return "/" + "/".join(str(part) for part in path)
    return ".".join(str(part) for part in path) or str(where)
