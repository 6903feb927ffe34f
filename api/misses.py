"""GET /v1/misses: the questions without a measured answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from api.auth import require
from api.derived import fields_of
from api.http_errors import responses
from api.problem_schemas import ProblemOut
from api.schemas import DIGITS, Absent, DeviceName, Strict
from api.thread_routes import ThreadRoute
from tuner.evidence.known_devices import check_known
from tuner.evidence.misses import MOST_MISSES, Miss, page
from tuner.evidence.store import Store

router = APIRouter(tags=["misses"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)


class MissesQuery(Strict):
    """Selects misses."""

    device: DeviceName | Absent = None
    limit: Annotated[int, Field(ge=1, le=MOST_MISSES), DIGITS] = 1_000


@fields_of(Miss, problem=ProblemOut)
class MissOut(BaseModel):
    """A question without a measured answer, and how often it was asked."""


class MissesOut(BaseModel):
    """Misses, those asked most often first."""

    items: list[MissOut]
    total: int = Field(description="all that match, listed or not")


@router.get("/v1/misses", operation_id="listMisses", responses=responses())
def list_misses(request: Request, query: Annotated[MissesQuery, Query()]) -> MissesOut:
    """Questions to /v1/best and /v1/best:batch that had no measured answer and still have none.

    Questions of the last few seconds may be missing.
    """
    store: Store = request.app.state.store
    found, total = page(store, query.device, query.limit)
    if not found:
        check_known(store, query.device)
    items = [
        {"problem": miss.problem.document(), "device": miss.device, "count": miss.count, "first_at": miss.first_at,
         "last_at": miss.last_at}
        for miss in found
    ]  # fmt: skip
    return MissesOut.model_validate({"items": items, "total": total})
