"""Errors over HTTP: application/problem+json (RFC 9457), each saying what to do.

`type` names a section of `docs/http-problems.md`; `instance` is the request's id, also in `X-Request-Id`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from space.errors import SpaceError
from tuner.errors import StoreError, UnknownDevice

MEDIA_TYPE: Final = "application/problem+json"
_log = logging.getLogger("gemmtune.api")


class FieldError(BaseModel):
    """One field that is wrong."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a query parameter")
    detail: str


class ProblemDocument(BaseModel):
    """What every error answers with."""

    type: str = Field(description="where this kind of problem is described")
    title: str
    status: int
    detail: str = Field(description="one sentence: the value, the rule, the fix")
    instance: str = Field(description="the request's id")
    errors: list[FieldError] = Field(default_factory=list)


class HttpProblem(Exception):
    """An expected failure of a request."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem answers of an endpoint, for its OpenAPI description."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (*statuses, 422, 500, 503)
    }


def install(app: FastAPI) -> None:
    """Makes every failure of `app` a problem document."""

    @app.exception_handler(HttpProblem)
    def expected(request: Request, error: HttpProblem) -> JSONResponse:
        return answer(request, error.status, error.kind, error.detail)

    @app.exception_handler(SpaceError)
    def bad_input(request: Request, error: SpaceError) -> JSONResponse:
        return answer(request, 422, "bad-input", str(error))

    @app.exception_handler(StoreError)
    def no_store(request: Request, error: StoreError) -> JSONResponse:
        _log.error("store: %s", error)
        return answer(request, 503, "store-unavailable", str(error))

    @app.exception_handler(UnknownDevice)
    def no_device(request: Request, error: UnknownDevice) -> JSONResponse:
        return answer(request, 404, "unknown-device", str(error))

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [FieldError(pointer=_pointer(entry["loc"]), detail=entry["msg"]) for entry in error.errors()]
        first = errors[0]
        detail = f"{first.pointer}: {first.detail}; see /openapi.json for what is taken"
        return answer(request, 422, "malformed-request", detail, errors)

    @app.exception_handler(HTTPException)
    def by_framework(request: Request, error: HTTPException) -> JSONResponse:
        kinds = {404: "no-such-path", 405: "method-not-allowed"}
        detail = f"{request.method} {request.url.path}: {error.detail}; / lists what there is"
        headers = error.headers or {}
        return answer(request, error.status_code, kinds.get(error.status_code, "refused"), detail, headers=headers)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        _log.exception("unexpected failure of %s %s", request.method, request.url.path)
        return answer(request, 500, "internal", "this is a defect of gemmtune; the log has it under this request's id")


def answer(
    request: Request,
    status: int,
    kind: str,
    detail: str,
    errors: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document as a response."""
    document = ProblemDocument(
        type=f"/problems/{kind}",
        title=kind.replace("-", " "),
        status=status,
        detail=detail,
        instance=str(getattr(request.state, "request_id", "")),
        errors=errors or [],
    )
    return JSONResponse(document.model_dump(), status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def _pointer(location: tuple[int | str, ...]) -> str:
    where, *path = location
    if where == "body":
        return "/" + "/".join(str(part) for part in path)
    return ".".join(str(part) for part in path) or str(where)
