"""What the endpoints of campaigns, workers and rounds share: the tuner's objects, and its errors as problems."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from api.heartbeats import Heartbeats
from api.problems import answer
from api.turns import OTHERS_AT_ONCE, REPORTS_AT_ONCE, Turns
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

#: Status and kind of each error; the most particular one holds.
_PROBLEMS: Final[dict[type[Exception], tuple[int, str]]] = {
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
    """Makes the tuner's errors problems, and keeps how fast silence is noticed and who waits for whom."""
    app.state.timing = timing
    app.state.heartbeats = Heartbeats(Workers(app.state.store, timing))
    app.state.reports, app.state.round_calls = Turns(REPORTS_AT_ONCE), Turns(OTHERS_AT_ONCE)

    def refused(request: Request, error: Exception) -> JSONResponse:
        kind = next(kind for kind in type(error).__mro__ if kind in _PROBLEMS)
        status, word = _PROBLEMS[kind]
        return answer(request, status, word, str(error))

    for kind in (CampaignError, FleetError):
        app.add_exception_handler(kind, refused)


# Coroutines, though nothing is waited for: the framework would run plain functions in a thread of their own.
async def _campaigns(request: Request) -> Campaigns:
    return Campaigns(request.app.state.store, request.app.state.timing)


async def _workers(request: Request) -> Workers:
    return Workers(request.app.state.store, request.app.state.timing)


async def _rounds(request: Request) -> Rounds:
    return Rounds(request.app.state.store, request.app.state.timing)


async def _reports(request: Request) -> Turns:
    turns: Turns = request.app.state.reports
    return turns


async def _round_calls(request: Request) -> Turns:
    turns: Turns = request.app.state.round_calls
    return turns


TheCampaigns = Annotated[Campaigns, Depends(_campaigns)]
TheWorkers = Annotated[Workers, Depends(_workers)]
TheRounds = Annotated[Rounds, Depends(_rounds)]
Reports = Annotated[Turns, Depends(_reports)]
RoundCalls = Annotated[Turns, Depends(_round_calls)]
