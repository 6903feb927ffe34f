"""GET /v1/measurements:columns, /v1/measurements/{id} and …/versus/{id}: many in short, one in full, two compared."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth import require
from api.encoding import NOT_MODIFIED
from api.fleet import CampaignsDependency
from api.http_errors import responses
from api.schemas import DIGITS, Absent, DeviceName, MeasurementOut, Number, NumberPath, ProblemKey, Strict
from api.thread_routes import ThreadRoute
from api.views.columns import Coded, Columnar, ConfigsOut
from api.views.kept import ViewsDependency
from space.kind import problem_from_key
from tuner.evidence import changes
from tuner.evidence.known_devices import check_known
from tuner.evidence.records import Ratio, StoredMeasurement
from tuner.views import comparison, studies, versions
from tuner.views.measurements import MOST_ROWS, Wanted

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)


class MeasurementColumnsQuery(Strict):
    """Which measurements; all filters are optional."""

    problem: ProblemKey | Absent = None
    campaign: Number | Absent = None
    device: DeviceName | Absent = None
    study: Number | Absent = None
    after: Annotated[
        int, Field(ge=0, lt=2**53, description="`version` of an earlier answer: only rows that came since"), DIGITS
    ] = 0
    limit: Annotated[
        int, Field(ge=1, le=MOST_ROWS, description="with more rows, every 2^n-th id is taken"), DIGITS
    ] = 100_000


class MeasurementTableOut(BaseModel):
    """The columns, one entry per measurement, by id."""

    id: list[int]
    study_id: Coded[int]
    problem: Coded[str]
    device: Coded[str]
    device_kind: Coded[str]
    stage: Coded[str]
    policy: Coded[str]
    outcome: Coded[str]
    config: list[int] = Field(description="place in `configs`")
    median_us: list[float | None]
    series: Coded[int] = Field(description="number of the finals; 0 for screenings")
    taken_at: list[float] = Field(description="seconds since 1970")
    sm_mhz: Coded[int | None]
    power_w: list[float | None]
    temperature_c: Coded[int | None]
    throttled: Coded[bool | None]
    product_joules: list[float | None]
    worker_id: Coded[int | None]
    round_id: Coded[int | None]
    revoked: list[bool]


class MeasurementColumnsOut(Columnar):
    """Measurements as columns."""

    step: int = Field(description="1, or the power of two that divides every id")
    version: int = Field(description="`after` of the next question; another store has others")
    whole: bool = Field(
        description="all rows that match are here: also where `after` is not of this store, as after a restore"
    )
    columns: MeasurementTableOut
    configs: ConfigsOut


@router.get(
    "/v1/measurements:columns", operation_id="listMeasurementColumns", response_model=MeasurementColumnsOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def list_measurement_columns(
    request: Request, query: Annotated[MeasurementColumnsQuery, Query()], views: ViewsDependency,
    campaigns: CampaignsDependency,
) -> Response:
    """Measurements as columns, failed and revoked ones included; compressed, with an ETag.

    Beyond `limit` rows they are sampled: `step` says how. Poll with `version` as `after` for those that arrive later.
    If `whole`, all rows are there: replace those that you have.
    """
    key = problem_from_key(query.problem).key if query.problem else None
    wanted = Wanted(key, query.device, query.campaign, query.study, query.after, query.limit)

    def found() -> dict[str, Any]:
        columns = views.measurement_columns.document(wanted)
        if not columns["rows"]:
            check_known(views.store, query.device)
            if query.study is not None:
                studies.in_short(views.store, query.study)
            if query.campaign is not None:
                campaigns.get(query.campaign)
        return columns

    return await views.keep(
        request, wanted, found,
        version=lambda: (
            changes.version(views.store.changed(), "measurement"), views.revocations(),
            versions.of_campaign(views.store, query.campaign),
        ),
    )  # fmt: skip


@router.get(
    "/v1/measurements/{measurement_id:int}", operation_id="getMeasurement", response_model=MeasurementOut,
    responses=responses(404),
)  # fmt: skip
def get_measurement(measurement_id: NumberPath, views: ViewsDependency) -> StoredMeasurement:
    """One measurement with its samples, clocks, verification and provenance."""
    return studies.measurement(views.store, measurement_id)


@router.get(
    "/v1/measurements/{measurement_id:int}/versus/{baseline_id:int}", operation_id="compareMeasurements",
    response_model=Ratio, responses=responses(404, 409),
)  # fmt: skip
async def compare_measurements(measurement_id: NumberPath, baseline_id: NumberPath, views: ViewsDependency) -> Ratio:
    """How many times as fast as another measurement one is, with its 95 % interval."""
    return await views.run(lambda: comparison.compared(views.store, measurement_id, baseline_id))
