"""GET /v1/best/history and POST /v1/best:rollback: the changes to a problem's bests on a device, and their undoing."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from api.answer_service import AnswerService
from api.auth import require
from api.derived import FromAttributes, fields_of
from api.http_errors import responses
from api.json_bodies import JsonRoute
from api.pages import Page, PageQuery, page_of
from api.problem_schemas import Absent, ProblemIn, ProblemQuery
from api.schemas import MOST_NUMBER, Body, DeviceName
from space.devices import profile_named
from tuner.errors import StoreError
from tuner.evidence.records import BestChange
from tuner.evidence.store import Store

router = APIRouter(tags=["best"], dependencies=[Depends(require("read"))], route_class=JsonRoute)


class HistoryQuery(ProblemQuery, PageQuery):
    """A problem and a GPU model."""

    device: DeviceName | Absent = None


@fields_of(
    BestChange,
    policy=str,
    measurement_id=Annotated[int | None, Field(description="of the new best; null where the best was removed")],
    previous_id=Annotated[int | None, Field(description="of the best before; null for the first")],
    reason=Annotated[str, Field(description="why it changed")],
)
class BestChangeOut(FromAttributes):
    """One change of a best."""


class RollbackIn(Body):
    """A change of a best."""

    problem: ProblemIn
    device: DeviceName
    change: Annotated[int, Field(ge=1, le=MOST_NUMBER, description="id of the change in the history")]


class HistoryPage(Page[BestChangeOut]):
    """A page of changes, oldest first."""


@router.get(
    "/v1/best/history", operation_id="getBestHistory", response_model=HistoryPage, responses=responses()
)  # fmt: skip
def get_history(request: Request, response: Response, query: Annotated[HistoryQuery, Query()]) -> dict[str, object]:
    """Every change to the bests of one problem on a device, under every policy. `POST /v1/best:rollback` undoes one."""
    answer_service: AnswerService = request.app.state.answer_service
    store: Store = request.app.state.store
    problem, device = query.problem(), answer_service.device(query.device)
    filters = {"problem": problem.key, "device": device}
    place = query.place(store, filters)
    rows = store.best_changes(problem, device, place.after, query.limit + 1)
    if not rows:
        # As `/v1/best`: a name that no card has is an error that lists the nearest ones.
        profile_named(device)
    items, following = page_of(request, response, rows, query.limit, place)
    return {"items": items, "next": following}


@router.post(
    "/v1/best:rollback", operation_id="rollBackBest", dependencies=[Depends(require("admin"))],
    response_model=BestChangeOut, responses=responses(404),
)  # fmt: skip
def roll_back(body: RollbackIn, request: Request) -> BestChange:
    """Undoes a change: restores the best that it replaced. Returns the new change."""
    store: Store = request.app.state.store
    made = store.roll_back(body.problem.problem(), body.device, body.change)
    # What was undone is no longer answered; a store that can't be read now is read a moment later.
    with suppress(StoreError):
        request.app.state.follower.poll()
    return made
