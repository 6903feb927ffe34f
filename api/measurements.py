"""GET /v1/measurements: every measurement, page by page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from api.auth import require
from api.http_errors import responses
from api.pages import Page, PageQuery, page_of
from api.schemas import PRINTABLE, Absent, DeviceName, MeasurementOut
from space.registry import problem_from_key
from tuner.evidence.records import Outcome
from tuner.evidence.store import Store

router = APIRouter(tags=["measurements"], dependencies=[Depends(require("read"))])


class MeasurementsQuery(PageQuery):
    """Filters, all optional."""

    problem: Annotated[str, Field(max_length=300, pattern=PRINTABLE, description="problem key")] | Absent = None
    device: DeviceName | Absent = None
    outcome: Outcome | Absent = None


class MeasurementsPage(Page[MeasurementOut]):
    """A page of measurements, in the order in which they were taken."""


@router.get(
    "/v1/measurements", operation_id="listMeasurements", response_model=MeasurementsPage, responses=responses(400)
)
def list_measurements(
    request: Request, response: Response, query: Annotated[MeasurementsQuery, Query()]
) -> dict[str, object]:
    """Measurements, including failed ones. A cursor stays valid while new measurements arrive."""
    store: Store = request.app.state.store
    filters = {"problem": query.problem, "device": query.device, "outcome": query.outcome}
    after, problem = query.after(filters), problem_from_key(query.problem) if query.problem else None
    rows = store.page(after=after, limit=query.limit + 1, problem=problem, device=query.device, outcome=query.outcome)
    items, following = page_of(request, response, rows, query.limit, filters)
    return {"items": items, "next": following}
