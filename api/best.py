"""GET /v1/best and POST /v1/best:batch: the one question that the service exists for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, ValidationError

from api.answerer import Answerer, Told
from api.auth import Caller, require
from api.gate import Shortcut
from api.meters import Meters
from api.problems import FieldError, HttpProblem, responses
from api.schemas import Absent, BestOut, DeviceName, ProblemIn, ProblemQuery, Strict
from api.snapshot import Held
from space.errors import ProblemError
from tuner.evidence.tokens import Scope
from tuner.hints import tune_command

router = APIRouter(tags=["best"], dependencies=[Depends(require("read"))])

MOST_PROBLEMS: Final = 10_000
#: How long one batch may compute answers that were not measured.
_COMPUTING_SECONDS: Final = 1.0
#: Answers that are unpacked and sent at once.
_AT_ONCE: Final = 256
_JSON: Final = "application/json"


class BestQuery(ProblemQuery):
    """A problem, and the GPU that it is asked for."""

    device: DeviceName | Absent = None
    require: Literal["any", "measured"] = "any"


class BatchIn(Strict):
    """Problems, and the GPU that they are asked for."""

    problems: list[ProblemIn] = Field(min_length=1, max_length=MOST_PROBLEMS)
    device: DeviceName | None = None
    require: Literal["any", "measured"] = "any"


class BatchOut(BaseModel):
    """One answer a problem, in the order of the problems."""

    items: list[BestOut | None]
    unanswered: list[int] = Field(
        description="places whose item is null: not measured where that was required, else not computed within a "
        "second: ask for these again"
    )


@router.get("/v1/best", operation_id="getBest", response_model=BestOut, responses=responses(404))
def get_best(request: Request, query: Annotated[BestQuery, Query()]) -> Response:
    """The best known config for a problem on a device.

    An untuned shape is answered too: `source` says whether the config was `measured`, comes from the
    `nearest` measured shape, is `predicted`, or is the `default`. With `require=measured` only the first
    will do, and 404 otherwise.
    """
    answerer: Answerer = request.app.state.answerer
    problem, device = query.problem(), answerer.device(query.device)
    if query.require == "measured" and answerer.held(problem.key, device) is None:
        raise HttpProblem(
            404,
            "not-measured",
            f"{problem.shape} was not measured on {device}: run `{tune_command(problem)}`, or leave out "
            f"require=measured for an answer from what is known",
        )
    told = answerer.tell(problem, device)
    request.app.state.meters.answered(told.source)
    return Response(told.text, media_type=_JSON)


def shortcut(answerer: Answerer, meters: Meters) -> Shortcut:
    """`GET /v1/best` for a measured problem, told before the framework is asked: the same bytes, sooner."""

    def measured(query: bytes, caller: Caller) -> bytes | None:
        text = answerer.measured(query) if caller.may(Scope.READ) else None
        if text is not None:
            meters.answered("measured")
        return text

    return measured


#: The body is read by hand, so that checking 10,000 problems doesn't hold up everybody else's requests.
_BATCH_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {_JSON: {"schema": {"$ref": "#/components/schemas/BatchIn"}}}}
}


@router.post(
    "/v1/best:batch",
    operation_id="getBestBatch",
    response_model=BatchOut,
    responses=responses(415),
    openapi_extra=_BATCH_BODY,
)
async def get_best_batch(request: Request) -> Response:
    """The best known configs for up to 10,000 problems on one device.

    What was measured is always answered. What was not is computed, for at most a second: places that are
    still without an answer then are listed in `unanswered`, and asking again goes on where this ended.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != _JSON:
        raise HttpProblem(415, "not-json", f"the body is sent as {given[:80]!r}: send JSON as {_JSON}")
    answers = await run_in_threadpool(answer_all, request.app.state.answerer, await request.body())
    for source, count in Counter(map(_source, answers)).items():
        request.app.state.meters.answered(source, count)
    return StreamingResponse(rendered(answers), media_type=_JSON)


def answer_all(answerer: Answerer, body: bytes) -> list[Held | Told | None]:
    """An answer for each problem of a batch; None where there is none.

    Raises:
        RequestValidationError, HttpProblem: 422, the body is no batch.
    """
    try:
        batch = BatchIn.model_validate_json(body, strict=True)
    except ValidationError as error:
        shown = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([entry | {"loc": ("body", *entry["loc"])} for entry in shown]) from None
    device = answerer.device(batch.device)
    answers: list[Held | Told | None] = [answerer.held(asked.key, device) for asked in batch.problems]
    missing = [place for place, found in enumerate(answers) if found is None]
    problems = _problems(batch.problems, missing)
    if batch.require == "any":
        until = time.monotonic() + _COMPUTING_SECONDS
        for place, problem in zip(missing, problems, strict=True):
            if time.monotonic() > until:
                break
            answers[place] = answerer.tell(problem, device)
    return answers


def rendered(answers: list[Held | Told | None]) -> Iterator[bytes]:
    """A batch's answers as JSON, some at a time: all of them at once would fill 30 MB."""
    yield b'{"items":['
    for first in range(0, len(answers), _AT_ONCE):
        part = answers[first : first + _AT_ONCE]
        yield (b"," if first else b"") + b",".join([_text(found) for found in part])
    places = ",".join(str(place) for place, found in enumerate(answers) if found is None)
    yield b'],"unanswered":[' + places.encode() + b"]}"


def _text(found: Held | Told | None) -> bytes:
    if found is None:
        return b"null"
    return found.answer if isinstance(found, Held) else found.text


def _source(found: Held | Told | None) -> str:
    if found is None:
        return "unanswered"
    return "measured" if isinstance(found, Held) else found.source


def _problems(asked: list[ProblemIn], places: list[int]) -> list[Any]:
    problems, errors = [], []
    for place in places:
        try:
            problems.append(asked[place].problem())
        except ProblemError as error:
            errors.append(FieldError(pointer=f"/problems/{place}", detail=str(error)))
    if errors:
        raise HttpProblem(422, "bad-input", f"{errors[0].pointer}: {errors[0].detail}", errors=errors[:100])
    return problems
