"""GET /v1/best and POST /v1/best:batch: the best known config for a problem, or for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.answer_service import AnswerService, RenderedAnswer
from api.auth import Caller, require
from api.batches import CHUNKS_AT_ONCE, Answers, BatchOut, answer_all, chunks
from api.concurrency import ConcurrencyLimit, Rests
from api.device_bests import CachedBest
from api.http_errors import HttpError, not_json, responses
from api.metrics import Metrics
from api.middleware import FastPath
from api.problem_schemas import Absent, ProblemQuery
from api.schemas import BestOut, DeviceName, PolicyName
from api.thread_routes import ThreadRoute
from tuner.answering.answers import policy_of
from tuner.evidence.tokens import Scope
from tuner.hints import tune_command

router = APIRouter(tags=["best"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)

_JSON: Final = "application/json"


class BestQuery(ProblemQuery):
    """A problem and a GPU model."""

    device: DeviceName | Absent = None
    require: Literal["any", "measured"] = "any"
    policy: PolicyName | Absent = None
    neighbours: Literal["plain", "pdl"] = "plain"


@router.get("/v1/best", operation_id="getBest", response_model=BestOut, responses=responses(404))
def get_best(request: Request, query: Annotated[BestQuery, Query()]) -> Response:
    """The best known config for a problem on a device.

    An untuned shape gets an answer, too: `source` says whether the config was `measured`, was measured with a kernel
    that has changed since (`stale`), comes from the `nearest` measured shape, or is `predicted`. With
    `require=measured` anything but a measured config is a 404. `policy` names the timing policy, and with
    `require=measured` no other one will do; `neighbours=pdl` asks for the config for neighbours that let the next
    kernel start early.
    """
    answer_service: AnswerService = request.app.state.answer_service
    problem, device = query.problem(), answer_service.device(query.device)
    policy = policy_of(query.policy, query.neighbours)
    found: CachedBest | RenderedAnswer | None
    if query.require == "measured":
        found = answer_service.measured_answer(problem, device, policy, only=query.policy is not None)
    else:
        found = answer_service.answer(problem, device, policy)
    if found is None:
        under = f" under {query.policy}" if query.policy else ""
        detail = (
            f"{problem.shape} was not measured{under} with today's kernels on {device}: run `{tune_command(problem)}`, "
            "or leave out require=measured for an answer from what is known"
        )
        raise HttpError(404, "not-measured", detail)
    request.app.state.metrics.answered(found.source)
    return Response(found.answer, media_type=_JSON)


def fast_path(answer_service: AnswerService, metrics: Metrics) -> FastPath:
    """`GET /v1/best` for a measured problem, answered before the framework sees it: the same bytes, sooner."""

    def measured(query: bytes, caller: Caller) -> bytes | Callable[[], Awaitable[bytes | None]] | None:
        found = answer_service.measured(query) if caller.may(Scope.READ) else None
        if isinstance(found, CachedBest):
            return counted(found)
        return None if found is None else partial(read, found)

    async def read(reading: Callable[[], Awaitable[CachedBest | None]]) -> bytes | None:
        found = await reading()
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
    "/v1/best:batch", operation_id="getBestBatch", response_model=BatchOut, responses=responses(),
    openapi_extra=_BATCH_BODY, dependencies=[Depends(_slot)],
)  # fmt: skip
async def get_best_batch(request: Request) -> Response:
    """The best known configs for up to 10,000 problems on one device.

    Measured problems always get an answer. The others, and all of a question that names a policy or neighbours, share
    one second; `unanswered` lists the indices that got none, to be asked again. With `require=measured` it also lists
    those of problems that are not measured, which get none until they are tuned.
    """
    if refusal := not_json(request):
        raise refusal
    body, limit = await request.body(), request.app.state.batch_limit
    service = request.app.state.answer_service
    answers = await limit.run(lambda: _counted(answer_all(service, body, Rests(limit)), request))
    return StreamingResponse(_in_turn(chunks(answers), limit), media_type=_JSON)


def _counted(answers: Answers, request: Request) -> Answers:
    for source, count in Counter(found.source if found else "unanswered" for found in answers).items():
        request.app.state.metrics.answered(source, count)
    return answers


async def _in_turn(parts: Iterator[bytes], limit: ConcurrencyLimit) -> AsyncIterator[bytes]:
    """Chunks of a response, a few made when a slot is free: many at once would keep Python from everything else."""

    def following() -> list[bytes]:
        rest = Rests(limit)
        made = list(islice(parts, CHUNKS_AT_ONCE))
        rest()
        return made

    while made := await limit.run(following):
        for part in made:
            yield part
