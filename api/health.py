"""GET /healthz, /readyz and /metrics: for whoever keeps the service running."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from api.auth import require
from api.follower import STALE_SECONDS, Follower
from api.problems import HttpProblem, responses

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """What the service needs before it is given requests."""

    status: Literal["ready"]
    bests: int = Field(description="held in memory")
    left_out: int = Field(description="bests that this version of gemmtune can't read")
    snapshot_age_seconds: float = Field(description="since the store was last asked what changed")


@router.get("/healthz", operation_id="getHealth", responses=responses())
async def get_health() -> Health:
    """200 while the process answers at all; it asks no database, so that a database's fault restarts nothing."""
    return Health(status="ok")


@router.get("/readyz", operation_id="getReadiness", responses=responses())
async def get_readiness(request: Request) -> Readiness:
    """200 while requests are welcome; 503 while the store is first read, can't be read, or the service stops."""
    follower: Follower = request.app.state.follower
    age = follower.age_seconds()
    if request.app.state.stopping.is_set():
        raise _not_ready("the service is stopping")
    if not follower.loaded.is_set():
        raise _not_ready("the store is still being read")
    if age > STALE_SECONDS:
        raise _not_ready(f"the store can't be read since {age:.0f} s; answers come from what was read before")
    snapshot = follower.snapshot
    return Readiness(
        status="ready", bests=len(snapshot), left_out=snapshot.left_out, snapshot_age_seconds=round(age, 3)
    )


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,
    responses={**responses(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_metrics(request: Request, _: Annotated[object, Depends(require("read"))]) -> Response:
    """Everything that is counted and timed, in the text format of Prometheus."""
    meters, follower = request.app.state.meters, request.app.state.follower
    meters.bests.set(len(follower.snapshot))
    meters.snapshot_age.set(follower.age_seconds())
    return Response(generate_latest(meters.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _not_ready(why: str) -> HttpProblem:
    return HttpProblem(503, "not-ready", f"{why}: ask again in a second", {"Retry-After": "1"})
