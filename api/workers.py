"""/v1/workers: workers register, send heartbeats, claim rounds, drain and leave."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field, model_validator

from api.auth import Caller, require
from api.derived import fields_of
from api.fleet import RoundCallLimit, RoundsDependency, WorkersDependency
from api.fleet_schemas import RecordOut, WorkerOut, WorkersPage
from api.http_errors import responses
from api.json_bodies import JsonRoute
from api.pages import PageQuery, page_of
from api.patterns import PRINTABLE
from api.schemas import MOST_NUMBER, Body, Moment, Number, NumberPath, Part
from tuner.evidence import revocations
from tuner.evidence.records import Policy, Revocation
from tuner.fleet.campaigns.records import DeviceFacts, HeartbeatReply, Registration, RoundProgress, RoundTask

router = APIRouter(tags=["workers"], route_class=JsonRoute)
Reader, Admin = Depends(require("read")), Depends(require("admin"))
#: The caller, to whose token a worker belongs.
Worker = Annotated[Caller, Depends(require("work"))]
Administrator = Annotated[Caller, Depends(require("admin"))]
Short = Annotated[str, Field(min_length=1, max_length=80, pattern=PRINTABLE)]


class FactsIn(Part):
    """A worker's device."""

    name: Short
    arch: Annotated[str, Field(min_length=1, max_length=16, pattern=PRINTABLE)]
    kind: Literal["cuda", "recorded"]
    uuid: Short
    driver: Short
    sm_count: Annotated[int, Field(ge=1, le=10_000)]
    l2_bytes: Annotated[int, Field(ge=0, le=2**40)]
    memory_bytes: Annotated[int, Field(ge=0, le=2**50)] = 0
    screening: Annotated[Policy, Field(strict=False)] | None = None


class WorkerIn(Body):
    """A worker process and its device."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=PRINTABLE)]
    facts: FactsIn


@fields_of(Registration)
class WelcomeOut(RecordOut):
    """The response to a worker's registration."""


class ProgressIn(Part):
    """How far the round has come."""

    stage: Literal["screen", "final"]
    tried: Annotated[int, Field(ge=0, le=MOST_NUMBER, description="candidates measured in this round")]
    best_us: Annotated[float | None, Field(gt=0, le=1e12, allow_inf_nan=False)] = None


class BeatIn(Body):
    """A heartbeat."""

    round_id: Number | None = None
    progress: Annotated[ProgressIn | None, Field(description="of the round, for those who watch")] = None


@fields_of(
    HeartbeatReply,
    stop=Annotated[
        bool, Field(description="stop the round: it is no longer needed; its measurements may still be reported")
    ],
    drain=Annotated[bool, Field(description="finish the round, claim no other, and leave")],
)
class OrdersOut(RecordOut):
    """The service's orders to a worker, in response to its heartbeat."""


@fields_of(RoundTask, only=list[str])
class TaskOut(RecordOut):
    """A round that a worker has claimed."""


class RevokeIn(Body):
    """A worker or a token whose reports are no longer trusted."""

    worker: Annotated[
        str, Field(max_length=100, pattern=PRINTABLE, description="name of a worker, or number of a deleted one")
    ] = ""
    token: Annotated[str, Field(max_length=100, pattern=PRINTABLE, description="name of a token")] = ""
    since: Annotated[Moment | None, Field(description="only reports stored at this time or later")] = None
    reason: Annotated[str, Field(max_length=1_000, pattern=PRINTABLE)] = ""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.worker) == bool(self.token):
            raise ValueError("give either a worker or a token, whose reports are to be revoked")
        return self


@fields_of(Revocation)
class RevocationOut(RecordOut):
    """A revocation, and what it changed."""


class WorkersQuery(PageQuery):
    """Filters, all optional."""

    gone: bool = Field(default=False, description="include workers that are gone")


@router.post(
    "/v1/workers", operation_id="registerWorker", status_code=201, responses=responses(409)
)  # fmt: skip
async def register_worker(
    body: WorkerIn, workers: WorkersDependency, limit: RoundCallLimit, caller: Worker
) -> WelcomeOut:
    """Registers a worker on one device. It belongs to the caller's token. No two live workers share a GPU."""
    facts = DeviceFacts(**body.facts.model_dump())
    return WelcomeOut.of(await limit.run(lambda: workers.register(body.name, facts, caller.token_id)))


@router.get("/v1/workers", operation_id="listWorkers", dependencies=[Reader], responses=responses())
def list_workers(
    workers: WorkersDependency, request: Request, response: Response, query: Annotated[WorkersQuery, Query()]
) -> WorkersPage:
    """Workers with their device, their current round and their last heartbeat."""
    filters = {"of": "workers", "gone": query.gone}
    place = query.place(request.app.state.store, filters)
    rows = workers.page(place.after, query.limit + 1, query.gone)
    page, following = page_of(request, response, rows, query.limit, place)
    return WorkersPage(items=[WorkerOut.of(row) for row in page], next=following)


@router.post(
    "/v1/workers/{worker_id:int}:heartbeat", operation_id="heartbeat", responses=responses(404, 409)
)  # fmt: skip
async def heartbeat(worker_id: NumberPath, body: BeatIn, request: Request, caller: Worker) -> OrdersOut:
    """Records a heartbeat and returns the service's orders to the worker."""
    orders = await request.app.state.heartbeats.beat((worker_id, body.round_id, caller.token_id))
    # A worker that does not hold the round is told to stop it.
    if body.progress and body.round_id and not orders.stop:
        request.app.state.shown.progress.put(body.round_id, RoundProgress(**body.progress.model_dump()))
    return OrdersOut.of(orders)


@router.post(
    "/v1/workers/{worker_id:int}:claim", operation_id="claimRound", response_model=TaskOut,
    responses=responses(404, 409) | {204: {"description": "no round is waiting"}},
)  # fmt: skip
async def claim_round(
    worker_id: NumberPath, rounds: RoundsDependency, limit: RoundCallLimit, caller: Worker
) -> TaskOut | Response:
    """Claims the next round for this worker, or returns the one that it already holds."""
    task = await limit.run(lambda: rounds.claim(worker_id, caller.token_id))
    return TaskOut.of(task) if task else Response(status_code=204)


@router.post(
    "/v1/workers/{worker_id:int}:drain", operation_id="drainWorker", dependencies=[Admin], responses=responses(404, 409)
)  # fmt: skip
def drain_worker(worker_id: NumberPath, workers: WorkersDependency) -> WorkerOut:
    """Drains a worker: it finishes its round and leaves."""
    return WorkerOut.of(workers.drain(worker_id))


@router.post("/v1/workers:revoke", operation_id="revokeReports", responses=responses(404))
def revoke_reports(body: RevokeIn, request: Request, caller: Administrator) -> RevocationOut:
    """Takes a worker's or a token's reports out of the running, and serves the best of the rest."""
    found = revocations.revoke(
        request.app.state.store, worker=body.worker, token=body.token, since=body.since, reason=body.reason,
        made_by=caller.name,
    )  # fmt: skip
    return RevocationOut.of(found)


@router.post(
    "/v1/workers/{worker_id:int}:leave", operation_id="leave", status_code=204, responses=responses(404)
)  # fmt: skip
def leave(worker_id: NumberPath, workers: WorkersDependency, caller: Worker) -> None:
    """Removes a worker that has reported its round and leaves."""
    workers.leave(worker_id, caller.token_id)
