"""/v1/campaigns: made, watched, paused, resumed and cancelled; what they came to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

from api.auth import require
from api.fleet import TheCampaigns
from api.fleet_schemas import (
    CampaignIn,
    CampaignOut,
    CampaignProblemOut,
    CampaignProblemsPage,
    CampaignsPage,
    ProgressOut,
    SummaryOut,
)
from api.pages import PageQuery, page_of
from api.problems import responses
from api.schemas import Absent, Strict
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.estimate import estimate
from tuner.fleet.campaigns.records import CampaignStatus, ProblemStatus

router = APIRouter(tags=["campaigns"])
Reader, Submitter = Depends(require("read")), Depends(require("submit"))
CampaignId = Annotated[int, Path(ge=1, le=2**31 - 1)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="the same key with the same body makes one campaign"),
]

_POLL_SECONDS: Final = 1.0
#: Moments of commits may be a little out of order: results this much older than the last are looked at again.
_OVERLAP: Final = timedelta(seconds=5)


class CampaignsQuery(PageQuery):
    """Filters, all optional."""

    status: CampaignStatus | Absent = None


class ProblemsQuery(PageQuery):
    """Filters, all optional."""

    status: ProblemStatus | Absent = None


class EventsQuery(Strict):
    """How long to listen."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] = 3_600.0


class EstimateOut(BaseModel):
    """What a campaign would cost, without making it."""

    problems: int
    devices: int
    most_candidates: int
    untunable: list[dict[str, str]] = Field(description="problems that no config is legal for, among those looked at")
    looked_at: int
    gpu_seconds: float
    seconds: float | None = Field(description="with the workers that are live now; null without any")
    workers: int
    seconds_a_candidate: float
    seconds_a_problem: float
    rate_source: Literal["measured", "assumed"]


@router.post(
    "/v1/campaigns", operation_id="createCampaign", status_code=201, dependencies=[Submitter],
    responses=responses(409) | {200: {"model": CampaignOut, "description": "made before with the same key"}},
)  # fmt: skip
def create_campaign(
    body: CampaignIn, campaigns: TheCampaigns, response: Response, idempotency_key: IdempotencyKey = None
) -> CampaignOut:
    """Makes a campaign; its first rounds are queued when this returns."""
    campaign, made = campaigns.create(body.request(), idempotency_key)
    response.status_code = 201 if made else 200
    response.headers["Location"] = f"/v1/campaigns/{campaign.id}"
    return CampaignOut.of(campaign)


@router.post(
    "/v1/campaigns:estimate", operation_id="estimateCampaign", dependencies=[Reader], responses=responses()
)  # fmt: skip
def estimate_campaign(body: CampaignIn, request: Request) -> EstimateOut:
    """A dry run: what the campaign would cost. Nothing is made."""
    store: Store = request.app.state.store
    return EstimateOut.model_validate(estimate(store, body.request()), from_attributes=True)


@router.get("/v1/campaigns", operation_id="listCampaigns", dependencies=[Reader], responses=responses())
def list_campaigns(
    campaigns: TheCampaigns, request: Request, response: Response, query: Annotated[CampaignsQuery, Query()]
) -> CampaignsPage:
    """Campaigns, oldest first."""
    filters = {"of": "campaigns", "status": query.status}
    rows = campaigns.page(query.after(filters), query.limit + 1, query.status)
    page, following = page_of(request, response, rows, query.limit, filters)
    return CampaignsPage(items=[CampaignOut.of(row) for row in page], next=following)


@router.get(
    "/v1/campaigns/{campaign_id:int}", operation_id="getCampaign", dependencies=[Reader], responses=responses(404)
)  # fmt: skip
def get_campaign(campaign_id: CampaignId, request: Request) -> ProgressOut:
    """Where a campaign stands: its problems by status, its rate, and how long it still takes at that rate."""
    return ProgressOut.of(results.progress(request.app.state.store, campaign_id))


@router.get(
    "/v1/campaigns/{campaign_id:int}/summary", operation_id="getCampaignSummary", dependencies=[Reader],
    responses=responses(404),
)  # fmt: skip
def get_summary(campaign_id: CampaignId, request: Request) -> SummaryOut:
    """What a campaign gained over cuBLASLt, and what failed, by kind."""
    return SummaryOut.of(results.summary(request.app.state.store, campaign_id))


@router.get(
    "/v1/campaigns/{campaign_id:int}/problems", operation_id="listCampaignProblems", dependencies=[Reader],
    responses=responses(404),
)  # fmt: skip
def list_problems(
    campaign_id: CampaignId, request: Request, response: Response, query: Annotated[ProblemsQuery, Query()]
) -> CampaignProblemsPage:
    """A campaign's problems with their results, as far as they have any."""
    filters = {"of": campaign_id, "status": query.status}
    store: Store = request.app.state.store
    rows = results.problems(store, campaign_id, query.after(filters), query.limit + 1, query.status)
    page, following = page_of(request, response, rows, query.limit, filters)
    return CampaignProblemsPage(items=[CampaignProblemOut.of(row) for row in page], next=following)


@router.post(
    "/v1/campaigns/{campaign_id:int}:pause", operation_id="pauseCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def pause_campaign(campaign_id: CampaignId, campaigns: TheCampaigns) -> CampaignOut:
    """No further round begins; running ones end as they would."""
    return CampaignOut.of(campaigns.pause(campaign_id))


@router.post(
    "/v1/campaigns/{campaign_id:int}:resume", operation_id="resumeCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def resume_campaign(campaign_id: CampaignId, campaigns: TheCampaigns) -> CampaignOut:
    """Goes on where the campaign was paused."""
    return CampaignOut.of(campaigns.resume(campaign_id))


@router.post(
    "/v1/campaigns/{campaign_id:int}:cancel", operation_id="cancelCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def cancel_campaign(campaign_id: CampaignId, campaigns: TheCampaigns) -> CampaignOut:
    """Ends the campaign; running rounds stop at their next heartbeat. What was measured stays."""
    return CampaignOut.of(campaigns.cancel(campaign_id))


def _there(campaign_id: CampaignId, campaigns: TheCampaigns) -> None:
    """Refused before the stream begins, and so with a status."""
    campaigns.get(campaign_id)


@router.get(
    "/v1/campaigns/{campaign_id:int}/events", operation_id="watchCampaign", dependencies=[Reader, Depends(_there)],
    responses=responses(404), response_class=EventSourceResponse,
)  # fmt: skip
async def watch_campaign(
    campaign_id: CampaignId,
    request: Request,
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Server-sent events: `progress` whenever it changed, `result` for each problem that ended, `end` at the end.

    After a lost connection, Last-Event-ID goes on from there; a few results may come again.
    """
    watch = _Watch(request.app.state.store, campaign_id, _moment(last_event_id))
    stopping, loop = request.app.state.stopping, asyncio.get_running_loop()
    until = loop.time() + query.seconds
    while not stopping.is_set() and loop.time() < until:
        for event in await run_in_threadpool(watch.look):
            yield event
        if watch.ended:
            return
        await asyncio.sleep(min(_POLL_SECONDS, max(until - loop.time(), 0)))


class _Watch:
    """What one listener has been told."""

    def __init__(self, store: Store, campaign_id: int, since: datetime) -> None:
        self._store, self._campaign_id, self._since = store, campaign_id, since
        self._told: set[int] = set()
        self._progress: dict[str, Any] = {}
        self.ended = False

    def look(self) -> list[ServerSentEvent]:
        """The events since the last look."""
        progress = ProgressOut.of(results.progress(self._store, self._campaign_id)).model_dump(mode="json")
        events = list(self._results())
        if progress != self._progress:
            self._progress = progress
            events.append(ServerSentEvent(event="progress", data=progress))
        # Looked at before the results: what ended the campaign is among them.
        if progress["campaign"]["status"] in ("finished", "cancelled") and not progress["rounds_running"]:
            self.ended = True
            summary = SummaryOut.of(results.summary(self._store, self._campaign_id))
            events.append(ServerSentEvent(event="end", data=summary.model_dump(mode="json")))
        return events

    def _results(self) -> Iterator[ServerSentEvent]:
        after = 0
        while page := results.problems(self._store, self._campaign_id, after, 1_000, since=self._since - _OVERLAP):
            after = page[-1].id
            for entry in page:
                if entry.id not in self._told and entry.ended_at is not None:
                    self._told.add(entry.id)
                    self._since = max(self._since, entry.ended_at)
                    document = CampaignProblemOut.of(entry).model_dump(mode="json")
                    yield ServerSentEvent(event="result", data=document, id=entry.ended_at.isoformat())


def _moment(text: str | None) -> datetime:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return datetime(2000, 1, 1, tzinfo=UTC)
    return found if found.tzinfo and found.year > 2000 else datetime(2000, 1, 1, tzinfo=UTC)
