"""HTTP errors as application/problem+json (RFC 9457); each says what to do.

`type` names a row of `docs/http-errors.md`; `instance` is the request id, which `X-Request-Id` also carries.
"""

from __future__ import annotations

import json
import logging
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.patterns import RULES
from space.errors import SpaceError
from tuner import errors

MEDIA_TYPE: Final = "application/problem+json"
#: Error types of requests that the framework itself refuses, by status.
_FRAMEWORK: Final = {400: "malformed-body", 401: "token-needed", 404: "no-such-path", 405: "method-not-allowed"}
#: Pydantic's word for a field that a schema lacks.
_UNKNOWN_FIELD: Final = "extra_forbidden"
#: HTTP status and error type of each exception; the most derived class wins.
ERRORS: Final[Mapping[type[Exception], tuple[int, str]]] = {
    SpaceError: (422, "bad-input"),
    errors.StoreError: (503, "store-unavailable"),
    errors.UnstorableValue: (422, "unstorable-value"),
    errors.UnknownDevice: (404, "unknown-device"),
    errors.NothingMeasured: (404, "not-measured"),
    errors.UnknownMeasurement: (404, "unknown-measurement"),
    errors.NotComparable: (409, "not-comparable"),
    errors.UnknownStudy: (404, "unknown-study"),
    errors.CountFailed: (503, "not-counted"),
    errors.BuildRefused: (422, "build-refused"),
    errors.BuildDiffers: (409, "build-differs"),
    errors.CampaignError: (422, "bad-campaign"),
    errors.UnknownCampaign: (404, "unknown-campaign"),
    errors.CampaignEnded: (409, "campaign-ended"),
    errors.KeyReused: (422, "idempotency-key-reused"),
    errors.FleetError: (422, "bad-worker"),
    errors.WorkerGone: (409, "worker-gone"),
    errors.UnknownWorker: (404, "unknown-worker"),
    errors.SlotTaken: (409, "slot-taken"),
    errors.LeaseLost: (409, "lease-lost"),
    errors.UnknownRound: (404, "unknown-round"),
    errors.ResultRefused: (422, "result-refused"),
}
#: Bytes of JSON to which an error document's parts are cut, so that it has at most 2,000: a large request must not make
#: a larger answer.
_MOST_DETAIL_BYTES: Final = 1_000
_MOST_ERRORS: Final = 10
_MOST_ERRORS_BYTES: Final = 650
_MOST_ERROR_BYTES: Final = 200
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


class HttpError(HTTPException):
    """An expected failure of a request; as Starlette's own exception it passes through FastAPI's parsing of bodies.

    Attributes:
        kind: last part of the error's `type`, as in `/problems/bad-input`.
    """

    def __init__(
        self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None,
        errors: Sequence[FieldError] = (),
    ) -> None:  # fmt: skip
        super().__init__(status, detail, headers)
        self.kind, self.errors = kind, errors

    def response(self, request_id: str) -> JSONResponse:
        """The error document, for the request with this id."""
        wrong = [FieldError(pointer=_cut(each.pointer, _MOST_ERROR_BYTES), detail=_cut(each.detail, _MOST_ERROR_BYTES))
                 for each in self.errors[:_MOST_ERRORS]]  # fmt: skip
        while sum(len(each.model_dump_json().encode()) + 1 for each in wrong) > _MOST_ERRORS_BYTES:
            del wrong[-1]
        content = ProblemDocument(
            type=f"/problems/{self.kind}", title=self.kind.replace("-", " "), status=self.status_code,
            detail=_cut(self.detail, _MOST_DETAIL_BYTES), instance=request_id, errors=wrong,
        )  # fmt: skip
        return JSONResponse(content.model_dump(), self.status_code, self.headers, MEDIA_TYPE)


#: Statuses that the middleware or an endpoint may return on any path.
_ALWAYS: Final = (400, 401, 403, 408, 413, 414, 415, 421, 422, 429, 500, 503)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """An endpoint's error responses for OpenAPI: `statuses`, and those that every endpoint has."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, *_ALWAYS})
    }


def install(app: FastAPI) -> None:
    """Registers a handler that turns every failure of `app` into an error document."""
    for kind in (HTTPException, RequestValidationError, *ERRORS):
        app.add_exception_handler(kind, answer)


async def answer(request: Request, error: Exception) -> JSONResponse:
    """The error document of a failure."""
    invalid = error.errors() if isinstance(error, RequestValidationError) else ()
    if request.app.openapi_schema is None and any(each["type"] == _UNKNOWN_FIELD for each in invalid):
        # The known ones are read from the description: to make it here would hold up the event loop.
        await run_in_threadpool(request.app.openapi)
    return _http_error(request, error).response(request.state.request_id)


def _http_error(request: Request, error: Exception) -> HttpError:
    """The failure of a request as its client is told of it."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException) and error.status_code == 400 and error.__cause__ is not None:
        # The framework says only that it failed. Python's advice, which may follow, is for who runs the parser.
        why = str(error.__cause__).partition(";")[0]
        return HttpError(400, "malformed-body", f"the body is not valid JSON: {why}")
    if isinstance(error, HTTPException):
        detail = f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists all endpoints"
        headers = {**(error.headers or {}), **({"Allow": _allowed(request)} if error.status_code == 405 else {})}
        return HttpError(error.status_code, _FRAMEWORK.get(error.status_code, "refused"), detail, headers)
    if isinstance(error, RequestValidationError):
        found = error.errors()[: 2 * _MOST_ERRORS]
        if found[0]["loc"] == ("body",) and found[0]["type"] != "missing" and (refusal := not_json(request)):
            return refusal
        if found[0]["type"] == "json_invalid":
            return HttpError(400, "malformed-body", f"the body is not valid JSON: {_why_not_json(found[0])}")
        # A parameter that may be absent is never null: what is wrong with it is said by the other error.
        said = [each for each in found if each["type"] != "none_required"] or found
        # A route and what it depends on may both read the query.
        named = dict.fromkeys((_pointer(each["loc"]), _sentence(request, each)) for each in said[:_MOST_ERRORS])
        wrong = [FieldError(pointer=pointer, detail=sentence) for pointer, sentence in named]
        detail = f"{wrong[0].pointer}: {wrong[0].detail}; see /openapi.json for the schema"
        return HttpError(422, "malformed-request", detail, errors=wrong)
    if isinstance(error, errors.StoreError) and not isinstance(error, errors.UnstorableValue):
        # The cause names host and user, or the file, which only the operator may see.
        _log.error("store: %s; cause: %s", error, str(error.__cause__ or "none").splitlines()[0])
    status, kind = next(ERRORS[base] for base in type(error).__mro__ if base in ERRORS)
    wait = math.ceil(error.retry_after) if isinstance(error, errors.SlotTaken) else 0
    headers = {"Retry-After": str(wait)} if wait else {}
    return HttpError(status, kind, request.app.state.store.unnamed(str(error)), headers)


def _why_not_json(entry: Mapping[str, Any]) -> str:
    """What a parser of JSON says, and where: the framework has both apart, pydantic in one sentence."""
    *_, place = entry["loc"]
    why = entry.get("ctx", {}).get("error")
    if why is None or not isinstance(place, int):
        return str(entry["msg"]).removeprefix("Invalid JSON: ")
    return f"{why} at character {place + 1}"


def not_json(request: Request) -> HttpError | None:
    """The refusal of a body that is not sent as JSON; None if it is."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # The framework reads both.
    if given == "application/json" or (given.startswith("application/") and given.endswith("+json")):
        return None
    return HttpError(415, "not-json", f"the body is sent as {given[:80]!r}: send JSON as application/json")


def _allowed(request: Request) -> str:
    """All methods of a path; the framework lists those of the first matching route only."""
    scope = {name: request.scope[name] for name in ("type", "method", "path", "headers")}
    found = [route.methods for route in request.app.state.routes if route.matches(scope)[0] is not Match.NONE]
    allowed = set().union(*found)
    return ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))


def _sentence(request: Request, entry: Mapping[str, Any]) -> str:
    """What is wrong with a field and the value that it has, with the nearest known one if it is unknown."""
    if entry["type"] == "missing" and entry["loc"] == ("body",):
        return "the body is missing: send a JSON object"
    if entry["type"] != _UNKNOWN_FIELD:
        value = entry.get("input")
        if isinstance(value, str):
            value = value[:_MOST_ERROR_BYTES]
        given = f", not {json.dumps(value)}" if isinstance(value, str | int | float) else ""
        rule = RULES.get(str(entry.get("ctx", {}).get("pattern")), str(entry["msg"]).removeprefix("Value error, "))
        return f"{rule}{given}"
    *path, name = entry["loc"]
    known = _known_fields(request, path)
    if near := get_close_matches(str(name)[:_MOST_ERROR_BYTES], known, n=1):
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


def _cut(text: str, most: int) -> str:
    """As much of a text as takes `most` bytes of JSON."""
    if _json_bytes(text) <= most:
        return text
    kept = bisect_right(range(most), most - len("…".encode()), key=lambda length: _json_bytes(text[:length])) - 1
    return f"{text[:kept]}…"


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2


def _pointer(location: tuple[int | str, ...]) -> str:
    where, *path = location
    if where == "body":
        # RFC 6901 §3.
        return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)
    # What follows the name says which of a parameter's types was tried.
    return str(path[0] if path else where)
