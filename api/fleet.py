"""Shared by the endpoints of campaigns, workers and rounds: their dependencies, and the HTTP form of fleet errors."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from api.concurrency import CONCURRENT_REPORTS, CONCURRENT_ROUND_CALLS, ConcurrencyLimit
from api.heartbeats import HeartbeatBatcher
from api.http_errors import error_response
from tuner.errors import (
    CampaignEnded,
    CampaignError,
    FleetError,
    KeyReused,
    LeaseLost,
    ResultRefused,
    SlotTaken,
    UnknownCampaign,
    WorkerGone,
)
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import Timing
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers

#: HTTP status and error type of each exception; the most derived class wins.
_ERRORS: Final[dict[type[Exception], tuple[int, str]]] = {
    UnknownCampaign: (404, "unknown-campaign"),
    CampaignEnded: (409, "campaign-ended"),
    KeyReused: (422, "idempotency-key-reused"),
    CampaignError: (422, "bad-campaign"),
    WorkerGone: (409, "worker-gone"),
    SlotTaken: (409, "slot-taken"),
    LeaseLost: (409, "lease-lost"),
    ResultRefused: (422, "result-refused"),
    FleetError: (422, "bad-worker"),
}


def install(app: FastAPI, timing: Timing) -> None:
    """Registers the error handlers, and puts the timing, the heartbeat batcher and the limits into the app's state."""
    app.state.timing = timing
    app.state.heartbeats = HeartbeatBatcher(Workers(app.state.store, timing))
    app.state.report_limit = ConcurrencyLimit(CONCURRENT_REPORTS)
    app.state.round_call_limit = ConcurrencyLimit(CONCURRENT_ROUND_CALLS)

    def refused(request: Request, error: Exception) -> JSONResponse:
        kind = next(kind for kind in type(error).__mro__ if kind in _ERRORS)
        status, name = _ERRORS[kind]
        return error_response(request, status, name, str(error))

    for kind in (CampaignError, FleetError):
        app.add_exception_handler(kind, refused)


# Coroutines although they await nothing: FastAPI would run plain functions in a thread pool.
async def _campaigns(request: Request) -> Campaigns:
    return Campaigns(request.app.state.store, request.app.state.timing)


async def _workers(request: Request) -> Workers:
    return Workers(request.app.state.store, request.app.state.timing)


async def _rounds(request: Request) -> Rounds:
    return Rounds(request.app.state.store, request.app.state.timing)


async def _report_limit(request: Request) -> ConcurrencyLimit:
    limit: ConcurrencyLimit = request.app.state.report_limit
    return limit


async def _round_call_limit(request: Request) -> ConcurrencyLimit:
    limit: ConcurrencyLimit = request.app.state.round_call_limit
    return limit


CampaignsDependency = Annotated[Campaigns, Depends(_campaigns)]
WorkersDependency = Annotated[Workers, Depends(_workers)]
RoundsDependency = Annotated[Rounds, Depends(_rounds)]
ReportLimit = Annotated[ConcurrencyLimit, Depends(_report_limit)]
RoundCallLimit = Annotated[ConcurrencyLimit, Depends(_round_call_limit)]
