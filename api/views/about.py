"""GET /v1/caller and /v1/service: who asks, and what answers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from api.auth import Caller, any_caller, require
from api.http_errors import responses
from api.thread_routes import ThreadRoute
from api.views.kept import ViewsDependency
from space.version import own_version
from tuner.evidence.changes import RESTORED
from tuner.evidence.tokens import Scope

router = APIRouter(tags=["service"], route_class=ThreadRoute)
SomeCaller = Annotated[Caller, Depends(any_caller)]


class CallerOut(BaseModel):
    """The caller of a request."""

    name: str = Field(description="name of the token; `local` where none is needed")
    tokens: bool = Field(description="whether the service requires tokens")
    scopes: list[Scope] = Field(description="what the caller may do")


class ServiceOut(BaseModel):
    """A service and its store."""

    version: str
    demo: bool = Field(description="it replays a recording as if live")
    store: Literal["sqlite", "postgresql"]
    bests: int = Field(description="bests in memory")
    devices: list[str] = Field(description="those that have bests")
    changes: dict[str, int] = Field(description="number of changes so far of bests, measurements and tokens")
    snapshot_age_seconds: float


@router.get("/v1/caller", operation_id="getCaller", responses=responses())
async def get_caller(request: Request, caller: SomeCaller) -> CallerOut:
    """What the caller may do; `admin` includes everything."""
    scopes = [scope for scope in Scope if caller.may(scope)]
    return CallerOut(name=caller.name, tokens=request.app.state.token_cache.required, scopes=scopes)


@router.get("/v1/service", operation_id="getService", responses=responses(), dependencies=[Depends(require("read"))])
def get_service(request: Request, views: ViewsDependency) -> ServiceOut:
    """The service's version, and what its store holds."""
    follower = request.app.state.follower
    counted = {name: count for name, count in views.store.changed().items() if name != RESTORED}
    snapshot = follower.snapshot
    return ServiceOut(
        version=own_version(), demo=views.demo, store="sqlite" if views.store.embedded else "postgresql",
        bests=len(snapshot), devices=list(snapshot.devices), changes=counted,
        snapshot_age_seconds=round(follower.age_seconds(), 3),
    )  # fmt: skip
