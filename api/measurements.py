"""GET /v1/measurements: every measurement, page by page."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from api.auth import require
from api.http_errors import responses
from api.pages import Page, PageQuery, page_of
from api.patterns import PRINTABLE
from api.problem_schemas import ProblemFilter
from api.schemas import Absent, DeviceName, MeasurementOut, PolicyName
from api.thread_routes import ThreadRoute
from space.errors import ProblemError
from space.kind import problem_from_key
from space.problem import Problem
from tuner.evidence.known_devices import check_known
from tuner.evidence.records import Outcome
from tuner.evidence.store import Store

router = APIRouter(tags=["measurements"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)


class MeasurementsQuery(PageQuery, ProblemFilter):
    """Filters, all optional: a problem by its key, or by the fields that `GET /v1/best` takes."""

    problem: Annotated[str, Field(max_length=300, pattern=PRINTABLE, description="problem key")] | Absent = None
    device: DeviceName | Absent = None
    outcome: Outcome | Absent = None
    policy: PolicyName | Absent = None
    stage: Literal["screen", "final"] | Absent = None

    def asked(self) -> Problem | None:
        """The problem that is asked for; None for all.

        Raises:
            ProblemError: it is named twice, or its fields are incomplete or wrong.
        """
        found = self.problem_or_none()
        if found and self.problem:
            raise ProblemError("problem=… and fields such as m both name a problem: give one of them")
        return problem_from_key(self.problem) if self.problem else found


class MeasurementsPage(Page[MeasurementOut]):
    """A page of measurements, in the order in which they were taken."""


@router.get(
    "/v1/measurements", operation_id="listMeasurements", response_model=MeasurementsPage, responses=responses()
)
def list_measurements(
    request: Request, response: Response, query: Annotated[MeasurementsQuery, Query()]
) -> dict[str, object]:
    """Measurements, including failed ones. A cursor stays valid while new measurements arrive."""
    store: Store = request.app.state.store
    problem = query.asked()
    conditions = {"device": query.device, "outcome": query.outcome, "policy": query.policy, "stage": query.stage}
    filters = conditions | {"problem": problem.key if problem else None}
    place = query.place(store, filters)
    rows = store.page(after=place.after, limit=query.limit + 1, problem=problem, **conditions)
    if not rows:
        check_known(store, query.device)
    items, following = page_of(request, response, rows, query.limit, place)
    return {"items": items, "next": following}
