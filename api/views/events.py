"""GET /v1/events: everything that changes, as server-sent events that can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from api import streams
from api.auth import require
from api.fleet import CampaignsDependency
from api.http_errors import responses
from api.schemas import DECIMAL, Absent, DeviceName, Number, Strict
from api.views.hub import EventHub, Listener, moment
from api.views.kept import ViewsDependency
from tuner.evidence.known_devices import check_known
from tuner.views.feed import Event

router = APIRouter(tags=["views"])


class AllEventsQuery(Strict):
    """Which events, and how long the stream stays open."""

    seconds: Annotated[float, Field(gt=0, le=86_400), DECIMAL] = 3_600.0
    campaign: Annotated[Number | Absent, Field(description="leaves out events of other campaigns")] = None
    device: DeviceName | Absent = None


async def _check_filters(
    query: Annotated[AllEventsQuery, Query()], views: ViewsDependency, campaigns: CampaignsDependency
) -> None:
    """Refuses a device that nobody has, or a campaign that there is not, before the stream begins: it would stay
    silent.
    """
    if query.device is not None:
        await views.run(partial(check_known, views.store, query.device))
    if query.campaign is not None:
        await views.run(partial(campaigns.get, query.campaign))


async def _listening(
    request: Request, last_event_id: Annotated[str | None, Header(max_length=100)] = None
) -> AsyncIterator[tuple[Listener, bool]]:
    """A listener as long as the request lasts, and whether it resumes.

    The stream itself couldn't close it: cancelled while it hands over an event, a generator runs on only once garbage
    is collected.
    """
    hub: EventHub = request.app.state.hub
    listener, resumed = await hub.listen(last_event_id)
    try:
        yield listener, resumed
    finally:
        listener.close()


@router.get(
    "/v1/events", operation_id="watchEverything", responses=responses(404),
    dependencies=[Depends(require("read")), Depends(_check_filters), Depends(streams.count_stream)],
    response_class=EventSourceResponse,
)  # fmt: skip
async def watch_everything(
    request: Request,
    query: Annotated[AllEventsQuery, Query()],
    listening: Annotated[tuple[Listener, bool], Depends(_listening)],
) -> AsyncIterable[ServerSentEvent]:
    """Server-sent events: `best`, `measurements`, `revoked`, `round`, `worker`, `campaign`, `problem`, each within
    250 ms.

    The first one is `hello`. After a lost connection, Last-Event-ID resumes the stream without loss, and `hello` says
    `"resumed":true`; if it says false, events were missed, and what is shown has to be read again. Another `hello` says
    so to a client that reads too slowly.
    """
    listener, resumed = listening
    loop = asyncio.get_running_loop()
    until = loop.time() + query.seconds
    yield _hello(listener, resumed)
    while (left := until - loop.time()) > 0:
        told = await listener.next(min(left, streams.MOST_WAIT_SECONDS))
        if not streams.may_go_on(request):
            return
        if listener.missed:
            yield _hello(listener, resumed=False)
        for message, event in told:
            if _wanted(event, query):
                yield message


def _hello(listener: Listener, resumed: bool) -> ServerSentEvent:
    return ServerSentEvent(event="hello", data={"resumed": resumed, "at": moment()}, id=listener.id())


def _wanted(event: Event, query: AllEventsQuery) -> bool:
    if query.campaign is not None and event.campaign not in (None, query.campaign):
        return False
    return query.device is None or event.device in (None, query.device)
