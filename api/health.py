"""GET /healthz, /readyz and /metrics: for operating the service."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from api.auth import require
from api.http_errors import HttpError, responses
from api.snapshot_follower import STALE_SECONDS, SnapshotFollower
from api.thread_routes import ThreadRoute

router = APIRouter(tags=["service"], route_class=ThreadRoute)


class Health(BaseModel):
    """The process responds."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """The state of a service that is ready for requests."""

    status: Literal["ready"]
    bests: int = Field(description="bests in memory")
    left_out: int = Field(description="bests that this version of gemmtune can't read")
    snapshot_age_seconds: float = Field(description="time since the last successful poll of the store")


@router.get("/healthz", operation_id="getHealth", responses=responses())
async def get_health() -> Health:
    """200 while the process responds. It reads no database, so that a database failure restarts nothing."""
    return Health(status="ok")


@router.get("/readyz", operation_id="getReadiness", responses=responses())
async def get_readiness(request: Request) -> Readiness:
    """200 while the service can read and write its store; 503 while it can't, first reads it, or shuts down.

    It touches no database itself: threads poll and write all the time, each with its own limit.
    """
    follower: SnapshotFollower = request.app.state.follower
    age = follower.age_seconds()
    if request.app.state.stopping.is_set():
        raise _not_ready("the service is stopping")
    if not follower.loaded.is_set():
        raise _not_ready("the service is still reading its store")
    if not request.app.state.shown.warmed.is_set():
        raise _not_ready("the service is still preparing the columns of the bests")
    if age > STALE_SECONDS:
        raise _not_ready(f"the store could not be read for {age:.0f} s; answers come from the last snapshot")
    if refusal := request.app.state.write_probe.refusal():
        raise _not_ready(refusal)
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
    """All metrics in the Prometheus text format."""
    metrics, follower = request.app.state.metrics, request.app.state.follower
    metrics.bests.set(len(follower.snapshot))
    metrics.snapshot_age.set(follower.age_seconds())
    return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _not_ready(why: str) -> HttpError:
    return HttpError(503, "not-ready", f"{why}: ask again in a second", {"Retry-After": "1"})
