"""GET /v1/best and POST /v1/best:batch: the best known config for a problem, or for many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from api.answer_service import AnswerService, RenderedAnswer
from api.auth import Caller, require
from api.concurrency import ConcurrencyLimit, Rests
from api.device_bests import CachedBest
from api.http_errors import FieldError, HttpError, responses
from api.metrics import Metrics
from api.middleware import FastPath
from api.problem_schemas import Absent, ProblemIn, ProblemQuery
from api.schemas import BestOut, DeviceName, Strict, too_many
from space.errors import ProblemError
from tuner.answering.answers import policy_of
from tuner.evidence.records import Policy
from tuner.evidence.tokens import Scope
from tuner.hints import tune_command

router = APIRouter(tags=["best"], dependencies=[Depends(require("read"))])

MOST_PROBLEMS: Final = 10_000
#: One batch may compute answers that were not measured for this long.
_COMPUTING_SECONDS: Final = 1.0
#: Problems that are checked, and answers that are decompressed and sent, at a time; and problems that are looked up.
_AT_ONCE: Final = 256
_LOADED_AT_ONCE: Final = 1_000
_JSON: Final = "application/json"

_PROBLEMS: Final = TypeAdapter(list[ProblemIn])
Answers: TypeAlias = list[CachedBest | RenderedAnswer | None]


class BestQuery(ProblemQuery):
    """A problem and a GPU model."""

    device: DeviceName | Absent = None
    require: Literal["any", "measured"] = "any"
    policy: Policy | Absent = None
    neighbours: Literal["plain", "pdl"] = "plain"


class BatchIn(Strict):
    """Problems and a GPU model."""

    problems: list[ProblemIn] = Field(min_length=1, max_length=MOST_PROBLEMS)
    device: DeviceName | None = None
    require: Literal["any", "measured"] = "any"


class BatchOut(BaseModel):
    """One answer per problem, in the order of the problems."""

    items: list[BestOut | None]
    unanswered: list[int] = Field(
        description="indices whose item is null: not measured although that was required, or not computed within a "
        "second; ask for those again"
    )


@router.get("/v1/best", operation_id="getBest", response_model=BestOut, responses=responses(404))
def get_best(request: Request, query: Annotated[BestQuery, Query()]) -> Response:
    """The best known config for a problem on a device.

    An untuned shape gets an answer, too: `source` says whether the config was `measured`, was measured with a kernel
    that has changed since (`stale`), comes from the `nearest` measured shape, is `predicted`, or is the `default`. With
    `require=measured` anything but a measured config is a 404. `policy` says what the time is to stand for;
    `neighbours=pdl` asks for the config among kernels that let the next one start early.
    """
    answer_service: AnswerService = request.app.state.answer_service
    problem, device = query.problem(), answer_service.device(query.device)
    if query.require == "measured" and not answer_service.is_measured(problem, device):
        detail = (f"{problem.shape} was not measured with today's kernels on {device}: run `{tune_command(problem)}`, "
                  "or leave out require=measured for an answer from what is known")  # fmt: skip
        raise HttpError(404, "not-measured", detail)
    found = answer_service.answer(problem, device, policy_of(query.policy, query.neighbours))
    request.app.state.metrics.answered(found.source)
    return Response(found.answer, media_type=_JSON)


def fast_path(answer_service: AnswerService, metrics: Metrics) -> FastPath:
    """`GET /v1/best` for a measured problem, answered before the framework sees it: the same bytes, sooner."""

    def measured(query: bytes, caller: Caller) -> bytes | Awaitable[bytes | None] | None:
        found = answer_service.measured(query) if caller.may(Scope.READ) else None
        if isinstance(found, CachedBest):
            return counted(found)
        return None if found is None else read(found)

    async def read(reading: Awaitable[CachedBest | None]) -> bytes | None:
        found = await reading
        return counted(found) if found else None

    def counted(found: CachedBest) -> bytes:
        metrics.answered(found.source)
        return found.answer

    return measured


async def _slot(request: Request) -> AsyncIterator[None]:
    """Holds one of the caller's slots until the answer is sent."""
    async with request.app.state.batch_slots.of(request.state.who):
        yield


#: The endpoint parses the body in a worker thread: validating 10,000 problems would hold up every other request.
_BATCH_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {_JSON: {"schema": {"$ref": "#/components/schemas/BatchIn"}}}}
}


@router.post(
    "/v1/best:batch", operation_id="getBestBatch", response_model=BatchOut, responses=responses(415),
    openapi_extra=_BATCH_BODY, dependencies=[Depends(_slot)],
)  # fmt: skip
async def get_best_batch(request: Request) -> Response:
    """The best known configs for up to 10,000 problems on one device.

    Measured problems are always answered. Answers for the others are computed for at most a second; the indices that
    have none by then are listed in `unanswered`, and the next request continues where this one stopped.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != _JSON:
        raise HttpError(415, "not-json", f"the body is sent as {given[:80]!r}: send JSON as {_JSON}")
    body, limit = await request.body(), request.app.state.batch_limit
    service = request.app.state.answer_service
    answers = await limit.run(lambda: _counted(answer_all(service, body, Rests(limit)), request))
    return StreamingResponse(_in_turn(rendered(answers), limit), media_type=_JSON)


def _counted(answers: Answers, request: Request) -> Answers:
    for source, count in Counter(found.source if found else "unanswered" for found in answers).items():
        request.app.state.metrics.answered(source, count)
    return answers


async def _in_turn(parts: Iterator[bytes], limit: ConcurrencyLimit) -> AsyncIterator[bytes]:
    """Parts of a response, each made when a slot is free: many at once would keep Python from everything else."""
    def following() -> bytes | None:
        rest = Rests(limit)
        part = next(parts, None)
        rest()
        return part

    while (part := await limit.run(following)) is not None:
        yield part


def answer_all(answer_service: AnswerService, body: bytes, rest: Callable[[], None] = lambda: None) -> Answers:
    """One answer per problem of a batch; None where there is none.

    Args:
        rest: called between the parts of the work.

    Raises:
        RequestValidationError, HttpError: 422, the body is not a valid batch.
    """
    batch = _batch(body, rest)
    device = answer_service.device(batch.device)
    snapshot, answers = answer_service.snapshot, Answers()
    for first in range(0, len(batch.problems), _LOADED_AT_ONCE):
        keys = [asked.key or "" for asked in batch.problems[first : first + _LOADED_AT_ONCE]]
        known = snapshot.load(device, keys)
        answers += map(known.get, keys)
        rest()
    missing = [place for place, found in enumerate(answers) if found is None]
    problems = _problems(batch.problems, missing)
    if batch.require == "any":
        until = time.monotonic() + _COMPUTING_SECONDS
        for place, problem in zip(missing, problems, strict=True):
            if time.monotonic() > until:
                break
            answers[place] = answer_service.answer(problem, device)
    return answers


def _batch(body: bytes, rest: Callable[[], None]) -> BatchIn:
    """A batch, checked a few problems at a time: checking all at once keeps Python from everything else for 20 ms.

    Raises:
        RequestValidationError: the body is not a valid batch; the first wrong problems are named.
    """
    first = 0
    try:
        try:
            document = orjson.loads(body)
            problems = document["problems"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            return BatchIn.model_validate_json(body, strict=True)
        if not isinstance(problems, list) or len(problems) > MOST_PROBLEMS:
            return BatchIn.model_validate_json(body, strict=True)
        batch = BatchIn.model_validate(document | {"problems": problems[:_AT_ONCE]}, strict=True)
        for first in range(_AT_ONCE, len(problems), _AT_ONCE):
            rest()
            batch.problems += _PROBLEMS.validate_python(problems[first : first + _AT_ONCE], strict=True)
    except ValidationError as error:
        if many := too_many(error):
            raise RequestValidationError([{"type": many.type, "loc": ("body",), "msg": many.message()}]) from None
        shown = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([each | {"loc": _place(each["loc"], first)} for each in shown]) from None
    return batch


def _place(location: tuple[int | str, ...], first: int) -> tuple[int | str, ...]:
    """Where an error is in the body.

    Args:
        first: index of the first of the problems that were checked together; 0 where the whole batch was.
    """
    return ("body", "problems", first + int(location[0]), *location[1:]) if first else ("body", *location)


def rendered(answers: Answers) -> Iterator[bytes]:
    """A batch's answers as JSON, in chunks: all of them at once would take 30 MB."""
    yield b'{"items":['
    for first in range(0, len(answers), _AT_ONCE):
        part = answers[first : first + _AT_ONCE]
        yield (b"," if first else b"") + b",".join([found.answer if found else b"null" for found in part])
    places = ",".join(str(place) for place, found in enumerate(answers) if found is None)
    yield b'],"unanswered":[' + places.encode() + b"]}"


def _problems(asked: list[ProblemIn], places: list[int]) -> list[Any]:
    problems, errors = [], []
    for place in places:
        try:
            problems.append(asked[place].problem())
        except ProblemError as error:
            errors.append(FieldError(pointer=f"/problems/{place}", detail=str(error)))
    if errors:
        raise HttpError(422, "bad-input", f"{errors[0].pointer}: {errors[0].detail}", errors=errors[:100])
    return problems
