"""GET /v1/measurements: every measurement, page by page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api import cursors
from api.auth import require
from api.http_errors import next_link, responses
from api.schemas import PRINTABLE, Absent, DeviceName, MeasurementOut, Strict
from space.registry import problem_from_key
from tuner.evidence.records import Outcome
from tuner.evidence.store import Store

router = APIRouter(tags=["measurements"], dependencies=[Depends(require("read"))])


class MeasurementsQuery(Strict):
    """Filters, all optional."""

    problem: Annotated[str, Field(max_length=300, pattern=PRINTABLE, description="problem key")] | Absent = None
    device: DeviceName | Absent = None
    outcome: Outcome | Absent = None
    limit: int = Field(default=100, ge=1, le=1000)
    cursor: Annotated[str, Field(max_length=2000)] | Absent = None


class MeasurementsPage(BaseModel):
    """A page of measurements, in the order in which they were taken."""

    items: list[MeasurementOut]
    next: str | None = Field(description="cursor of the next page; null on the last")


@router.get("/v1/measurements", operation_id="listMeasurements", responses=responses(400))
def list_measurements(
    request: Request, response: Response, query: Annotated[MeasurementsQuery, Query()]
) -> MeasurementsPage:
    """Measurements, including failed ones. A cursor stays valid while new measurements arrive."""
    store: Store = request.app.state.store
    outcome = query.outcome.value if query.outcome else None
    filters = {"problem": query.problem, "device": query.device, "outcome": outcome}
    after = cursors.decode(query.cursor, filters) if query.cursor else 0
    problem = problem_from_key(query.problem) if query.problem else None
    rows = store.page(after=after, limit=query.limit + 1, problem=problem, device=query.device, outcome=outcome)
    page, more = rows[: query.limit], len(rows) > query.limit
    following = cursors.encode(page[-1].id, filters) if more else None
    response.headers.update(next_link(request, following))
    return MeasurementsPage(items=[MeasurementOut.of(row) for row in page], next=following)
