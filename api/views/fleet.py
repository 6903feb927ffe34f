"""GET /v1/rounds, /v1/fleet and /v1/failures, and a campaign's problems as columns."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth import require
from api.derived import FromAttributes, fields_of
from api.encoding import NOT_MODIFIED, Rendered
from api.fleet import CampaignsDependency, WorkersDependency
from api.fleet_schemas import RecordOut, WorkerOut
from api.http_errors import responses
from api.pages import Page, PageQuery, page_of
from api.schemas import Absent, ConfigOut, DeviceName, Moment, Number, NumberPath, ProblemKey, Strict
from api.thread_routes import ThreadRoute
from api.views.columns import Coded
from api.views.kept import ViewsDependency
from api.views.space import Word
from space.family import family_named
from space.kind import problem_from_key
from tuner.evidence.known_devices import check_known
from tuner.evidence.records import Clocks, Outcome
from tuner.views import failures, fleet, rounds
from tuner.views.campaigns import problem_columns
from tuner.views.failures import Example, FailureFilter, FailureGroup, Failures, Suspect
from tuner.views.fleet import DeviceFacts, FleetFacts, WorkerFacts
from tuner.views.rounds import ProgressFacts, RoundFacts, RoundFilter, RoundStatus

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)


class RoundsQuery(PageQuery):
    """Filters, all optional."""

    worker: Number | Absent = None
    campaign: Number | Absent = None
    status: RoundStatus | Absent = None
    since: Annotated[Moment | Absent, Field(description="only rounds that still run or ended since then")] = None


@fields_of(ProgressFacts)
class ProgressFactsOut(FromAttributes):
    """How far a running round had come at a moment."""


@fields_of(RoundFacts, progress=ProgressFactsOut | None)
class RoundOut(FromAttributes):
    """One round."""


class RoundsPage(Page[RoundOut]):
    """A page of rounds, newest first."""


@fields_of(WorkerFacts, worker=WorkerOut, round=RoundOut | None, last_clocks=Clocks | None)
class WorkerFactsOut(RecordOut):
    """A worker with what it does."""


@fields_of(DeviceFacts)
class FleetDeviceOut(FromAttributes):
    """The workers of one device model, and the problems that wait for it."""


@fields_of(FleetFacts, devices=list[FleetDeviceOut], items=list[WorkerFactsOut])
class FleetOut(RecordOut):
    """The fleet at one moment."""


class FailuresQuery(Strict):
    """Filters, all optional."""

    device: DeviceName | Absent = None
    campaign: Number | Absent = None
    problem: ProblemKey | Absent = None
    family: Word | Absent = None
    outcome: Outcome | Absent = None


@fields_of(Example, config=ConfigOut)
class ExampleOut(FromAttributes):
    """One failure of a group."""


@fields_of(FailureGroup, example=ExampleOut | None)
class FailureGroupOut(FromAttributes):
    """Failures of one outcome and family with the same message, numbers aside."""


@fields_of(Suspect)
class SuspectOut(FromAttributes):
    """A config that parked a problem."""


@fields_of(Failures, groups=list[FailureGroupOut], suspects=list[SuspectOut])
class FailuresOut(FromAttributes):
    """Failures in groups, most frequent first."""


class CampaignTableOut(BaseModel):
    """The columns, one entry per problem of the campaign, in the order of its list."""

    id: list[int]
    key: list[str]
    m: list[int | None]
    n: list[int | None]
    k: list[int | None]
    dtype: Coded[str | None]
    layout: Coded[str | None]
    device: Coded[str]
    status: Coded[str]
    tried: list[int]
    failed: list[int]
    rounds: list[int]
    gpu_seconds: list[float]
    median_us: list[float | None]
    first: list[float | None] = Field(description="time of cuBLASLt's first choice over ours")
    first_low: list[float | None]
    first_high: list[float | None]
    best: list[float | None]
    measurement_id: list[int | None]
    attempts: list[int]
    reason: Coded[str]
    failing_config: Coded[str]
    ended_at: list[float | None] = Field(description="seconds since 1970")
    round_id: list[int | None] = Field(description="of the running round")
    family: Coded[str | None] = Field(description="of the best's config; `cublaslt` where the library won")
    revoked: list[bool] = Field(description="the best was revoked: what is served is another one, if anything")


class CampaignColumnsOut(BaseModel):
    """A campaign's problems as columns."""

    campaign_id: int
    rows: int
    columns: CampaignTableOut


@router.get("/v1/rounds", operation_id="listRounds", response_model=RoundsPage, responses=responses(404))
def list_rounds(
    request: Request, response: Response, query: Annotated[RoundsQuery, Query()], views: ViewsDependency,
    campaigns: CampaignsDependency,
) -> dict[str, object]:
    """Rounds, newest first; running ones with the progress that heartbeats carry."""
    wanted = RoundFilter(query.worker, query.campaign, query.status, query.since)
    filters = {"of": "rounds", "worker": query.worker, "campaign": query.campaign, "status": query.status,
               "since": query.since.isoformat() if query.since else None}  # fmt: skip
    place = query.place(views.store, filters)
    rows = rounds.page(views.store, views.progress, wanted, place.after, query.limit + 1)
    if not rows and query.campaign is not None:
        campaigns.get(query.campaign)
    items, following = page_of(request, response, rows, query.limit, place)
    return {"items": items, "next": following}


@router.get("/v1/fleet", operation_id="getFleet", responses=responses())
async def get_fleet(workers: WorkersDependency, views: ViewsDependency) -> FleetOut:
    """Workers with their rounds and last clocks, and the waiting work. A worker that is gone stays for an hour."""
    return await views.run(lambda: FleetOut.of(fleet.fleet_facts(views.store, workers, views.progress)))


@router.get(
    "/v1/failures", operation_id="listFailures", response_model=FailuresOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def list_failures(
    request: Request, query: Annotated[FailuresQuery, Query()], views: ViewsDependency, campaigns: CampaignsDependency
) -> Response:
    """Candidates that were not correct, in groups, each with an example; and the configs that parked problems."""
    key = problem_from_key(query.problem).key if query.problem else None
    wanted = FailureFilter(query.device, query.campaign, key, query.family, query.outcome)

    def found() -> Failures:
        listed = failures.failures(views.store, wanted)
        if not listed.measured:
            check_known(views.store, query.device)
            if query.family is not None:
                family_named(query.family)
            if query.campaign is not None:
                campaigns.get(query.campaign)
        return listed

    return await views.keep(
        request, wanted, found,
        version=lambda: failures.version(views.store, wanted), schema=FailuresOut, slow=True,
    )  # fmt: skip


@router.get(
    "/v1/campaigns/{campaign_id:int}/problems:columns", operation_id="listCampaignProblemColumns",
    response_model=CampaignColumnsOut, responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def list_campaign_problem_columns(request: Request, campaign_id: NumberPath, views: ViewsDependency) -> Response:
    """A campaign's problems as columns: status, gain, and what they took; compressed, with an ETag."""
    return await views.answer(
        request, ("campaign's problems", campaign_id),
        lambda: Rendered.of(problem_columns(views.store, campaign_id)),
    )  # fmt: skip
