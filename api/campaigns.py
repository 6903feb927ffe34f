"""/v1/campaigns: create, watch, pause, resume and cancel campaigns, and read their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from api.auth import Caller, require
from api.clients import watched
from api.derived import fields_of
from api.fleet import CampaignsDependency, CreationLimit, EstimateLimit
from api.fleet_schemas import (
    CampaignIn,
    CampaignOut,
    CampaignProblemOut,
    CampaignProblemsPage,
    CampaignsPage,
    ProgressOut,
    RecordOut,
    SummaryOut,
)
from api.http_errors import responses
from api.json_bodies import LargeJsonRoute
from api.pages import PageQuery, page_of
from api.schemas import DECIMAL, Absent, NumberPath, Strict
from api.snapshot_follower import SnapshotFollower
from api.streams import EventStreams, count_stream, may_go_on
from tuner.errors import StoreError, UnknownCampaign
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import of_token
from tuner.fleet.campaigns.estimate import Estimate, estimate
from tuner.fleet.campaigns.records import CampaignStatus, ProblemStatus

router = APIRouter(tags=["campaigns"], route_class=LargeJsonRoute)
Reader, Submitter = Depends(require("read")), Depends(require("submit"))
#: The caller, to whose token an idempotency key belongs.
Creator = Annotated[Caller, Submitter]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="repeating a request with the same key creates one campaign"),
]

_log = logging.getLogger("gemmtune.events")
_POLL_SECONDS: Final = 1.0
#: Commit times may be slightly out of order: each poll rereads results this much older than the latest one.
_OVERLAP: Final = timedelta(seconds=5)
#: Results that one poll of a stream reads: every other stream waits for it.
PAGE: Final = 1_000


class CampaignsQuery(PageQuery):
    """Filters, all optional."""

    status: CampaignStatus | Absent = None
    order: Literal["oldest", "newest"] = "oldest"


class ProblemsQuery(PageQuery):
    """Filters, all optional."""

    status: ProblemStatus | Absent = None


class EventsQuery(Strict):
    """How long the stream stays open."""

    seconds: Annotated[float, Field(gt=0, le=86_400), DECIMAL] = 3_600.0


@fields_of(
    Estimate,
    untunable=Annotated[
        list[dict[str, str]], Field(description="problems without any legal config, among those looked at")
    ],
    seconds=Annotated[float | None, Field(description="with the workers that are live now; null if a device has none")],
)
class EstimateOut(RecordOut):
    """What a campaign would cost."""


@router.post(
    "/v1/campaigns", operation_id="createCampaign", status_code=201,
    responses=responses() | {200: {"model": CampaignOut, "description": "created before with the same key"}},
)  # fmt: skip
async def create_campaign(
    body: CampaignIn, campaigns: CampaignsDependency, limit: CreationLimit, request: Request, response: Response,
    caller: Creator, idempotency_key: IdempotencyKey = None,
) -> CampaignOut:  # fmt: skip
    """Creates a campaign; its problems are queued when this returns."""
    owner, who = of_token(caller.token_id), str(request.state.who)
    campaign, created = await limit.run(who, lambda: campaigns.create(body.request(), idempotency_key, owner))
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/v1/campaigns/{campaign.id}"
    return CampaignOut.of(campaign)


@router.post(
    "/v1/campaigns:estimate", operation_id="estimateCampaign", dependencies=[Reader], responses=responses()
)  # fmt: skip
async def estimate_campaign(body: CampaignIn, limit: EstimateLimit, request: Request) -> EstimateOut:
    """A dry run: what the campaign would cost. Nothing is created."""
    store: Store = request.app.state.store
    async with watched(request) as wanted:
        return await limit.run(request.state.who, lambda: EstimateOut.of(estimate(store, body.request())), wanted)


@router.get("/v1/campaigns", operation_id="listCampaigns", dependencies=[Reader], responses=responses())
def list_campaigns(
    campaigns: CampaignsDependency, request: Request, response: Response, query: Annotated[CampaignsQuery, Query()]
) -> CampaignsPage:
    """Campaigns, oldest first or newest first."""
    filters = {"of": "campaigns", "status": query.status}
    if query.order == "newest":
        filters["order"] = query.order
    place = query.place(request.app.state.store, filters)
    rows = campaigns.page(place.after, query.limit + 1, query.status, query.order == "newest")
    page, following = page_of(request, response, rows, query.limit, place)
    return CampaignsPage(items=[CampaignOut.of(row) for row in page], next=following)


@router.get(
    "/v1/campaigns/{campaign_id:int}", operation_id="getCampaign", dependencies=[Reader], responses=responses(404)
)  # fmt: skip
def get_campaign(campaign_id: NumberPath, request: Request) -> ProgressOut:
    """A campaign's progress: its problems by status, its rate, and the remaining time at that rate."""
    return ProgressOut.of(results.progress(request.app.state.store, campaign_id))


@router.get(
    "/v1/campaigns/{campaign_id:int}/summary", operation_id="getCampaignSummary", dependencies=[Reader],
    responses=responses(404),
)  # fmt: skip
def get_summary(campaign_id: NumberPath, request: Request) -> SummaryOut:
    """A campaign's gain over cuBLASLt, and its failures by kind."""
    return SummaryOut.of(results.summary(request.app.state.store, campaign_id))


@router.get(
    "/v1/campaigns/{campaign_id:int}/problems", operation_id="listCampaignProblems", dependencies=[Reader],
    responses=responses(404),
)  # fmt: skip
def list_problems(
    campaign_id: NumberPath, request: Request, response: Response, query: Annotated[ProblemsQuery, Query()]
) -> CampaignProblemsPage:
    """A campaign's problems with their results so far."""
    filters = {"of": campaign_id, "status": query.status}
    store: Store = request.app.state.store
    place = query.place(store, filters)
    rows = results.problems(store, campaign_id, place.after, query.limit + 1, query.status)
    page, following = page_of(request, response, rows, query.limit, place)
    return CampaignProblemsPage(items=[CampaignProblemOut.of(row) for row in page], next=following)


@router.post(
    "/v1/campaigns/{campaign_id:int}:pause", operation_id="pauseCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def pause_campaign(campaign_id: NumberPath, campaigns: CampaignsDependency) -> CampaignOut:
    """Pauses a campaign: no further round begins; running rounds finish normally."""
    return CampaignOut.of(campaigns.pause(campaign_id))


@router.post(
    "/v1/campaigns/{campaign_id:int}:resume", operation_id="resumeCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def resume_campaign(campaign_id: NumberPath, campaigns: CampaignsDependency) -> CampaignOut:
    """Resumes a paused campaign where it stopped."""
    return CampaignOut.of(campaigns.resume(campaign_id))


@router.post(
    "/v1/campaigns/{campaign_id:int}:cancel", operation_id="cancelCampaign", dependencies=[Submitter],
    responses=responses(404, 409),
)  # fmt: skip
def cancel_campaign(campaign_id: NumberPath, campaigns: CampaignsDependency) -> CampaignOut:
    """Cancels a campaign; running rounds stop at their next heartbeat. Measurements are kept."""
    return CampaignOut.of(campaigns.cancel(campaign_id))


async def _check_exists(campaign_id: NumberPath, campaigns: CampaignsDependency, request: Request) -> None:
    """Refuses an unknown campaign before the stream begins, while a status can still be sent."""
    await request.app.state.streams.poll(lambda: campaigns.get(campaign_id))


@router.get(
    "/v1/campaigns/{campaign_id:int}/events", operation_id="watchCampaign", responses=responses(404),
    dependencies=[Reader, Depends(count_stream), Depends(_check_exists)], response_class=EventSourceResponse,
)  # fmt: skip
async def watch_campaign(
    campaign_id: NumberPath,
    request: Request,
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Server-sent events: `progress` on every change, `result` for each problem that ended, `end` at the end.

    After a lost connection, Last-Event-ID resumes the stream; results may be repeated. It stays open while the store
    can't be read.
    """
    follower: SnapshotFollower = request.app.state.follower
    feed = _EventFeed(request.app.state.store, campaign_id, _moment(last_event_id), follower.poll)
    streams: EventStreams = request.app.state.streams
    loop = asyncio.get_running_loop()
    until, failing = loop.time() + query.seconds, False
    while loop.time() < until:
        told = list[ServerSentEvent]()
        try:
            told, failing = await streams.poll(feed.poll), False
        except UnknownCampaign:
            # The store was restored from a backup without it: whoever resumes is told so.
            return
        except StoreError as error:
            if streams.failures.is_news(error):
                _log.error("no events: %s", error)
            failing = True
        if not may_go_on(request):
            return
        for event in told:
            yield event
        if feed.ended and not failing:
            return
        if failing or not feed.more:
            await asyncio.sleep(min(_POLL_SECONDS, max(until - loop.time(), 0)))


class _EventFeed:
    """The events of one campaign that one listener has not received yet.

    A look at the campaign is read a page in each poll: other streams' polls come between, and memory holds one page.

    Attributes:
        more: the look goes on in the next poll.
        ended: nothing more will come.

    Args:
        catch_up: called before events are told: whoever hears of a result asks for it at once.
    """

    def __init__(self, store: Store, campaign_id: int, since: datetime, catch_up: Callable[[], None]) -> None:
        self._store, self._campaign_id, self._catch_up = store, campaign_id, catch_up
        self._first = self._since = self._latest = since
        self._after = 0
        # Of a restored store, a problem ends once more.
        self._sent: dict[int, datetime] = {}
        self._told: dict[str, Any] = {}
        self._found: list[ServerSentEvent] = []
        self.more = self.ended = False

    def poll(self) -> list[ServerSentEvent]:
        """The next page's events since the last look, and after the last page those of the whole campaign.

        Raises:
            StoreError: the store can't be read; the next poll returns what this one would have.
            UnknownCampaign: the store has the campaign no more.
        """
        if not self.ended:
            if not self.more:
                self._begin()
            self._found += self._results()
            if not self.more:
                self._found += self._whole()
        if self._found:
            self._catch_up()
        told, self._found = self._found, []
        return told

    def _begin(self) -> None:
        """Begins a look: progress before the results, so that those that end the campaign are told before its end."""
        self._progress = ProgressOut.of(results.progress(self._store, self._campaign_id)).model_dump(mode="json")
        self._after, self._since = 0, self._latest
        if self._ends():
            # Also those that a clock which was set back dates long before the latest one.
            self._since = self._first

    def _ends(self) -> bool:
        # A sweep skips what still waits when a campaign is cancelled.
        left = any(self._progress["problems"][status] for status in ("waiting", "open"))
        return self._progress["campaign"]["status"] in ("finished", "cancelled") and not left

    def _results(self) -> list[ServerSentEvent]:
        """Results of the next page."""
        since = self._since - _OVERLAP
        page = results.problems(self._store, self._campaign_id, self._after, PAGE + 1, since=since)
        self.more, page = len(page) > PAGE, page[:PAGE]
        new = [(at, each) for each in page if (at := each.ended_at) is not None and self._sent.get(each.id) != at]
        new.sort(key=itemgetter(0))
        self._after = page[-1].id if page else self._after
        self._sent.update((each.id, at) for at, each in new)
        times = [ended_at for ended_at, _ in new]
        self._latest = max([self._latest, *times])
        # Later pages may have results of any time: a stream that is cut before the last page repeats the look.
        ids = [self._since] * len(new) if self.more else [*times[:-1], self._latest]
        return [
            ServerSentEvent(event="result", data=CampaignProblemOut.of(each).model_dump(mode="json"), id=at.isoformat())
            for at, (_, each) in zip(ids, new, strict=False)
        ]

    def _whole(self) -> list[ServerSentEvent]:
        """Progress if it has changed, and the end."""
        end = []
        if self._ends():
            summary = SummaryOut.of(results.summary(self._store, self._campaign_id))
            end = [ServerSentEvent(event="end", data=summary.model_dump(mode="json"))]
            self.ended = True
        if self._progress == self._told:
            return end
        self._told = self._progress
        return [ServerSentEvent(event="progress", data=self._progress), *end]


def _moment(text: str | None) -> datetime:
    """The moment of an event's id, in UTC: SQLite compares without time zones. Of anything else, long ago."""
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    try:
        found = datetime.fromisoformat(text or "")
        return max(found.astimezone(UTC), long_ago) if found.tzinfo else long_ago
    except (ValueError, OverflowError):
        return long_ago
