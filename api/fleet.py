"""Shared by the endpoints of campaigns, workers and rounds: their dependencies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Request

from api.concurrency import (
    CONCURRENT_CREATIONS,
    CONCURRENT_ESTIMATES,
    CONCURRENT_REPORTS,
    CONCURRENT_ROUND_CALLS,
    ConcurrencyLimit,
    FairLimit,
)
from api.heartbeats import HeartbeatBatcher
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import Timing
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers


def install(app: FastAPI, timing: Timing) -> None:
    """Puts what the endpoints of the fleet share into the app's state."""
    state, store = app.state, app.state.store
    state.campaigns, state.workers, state.rounds = Campaigns(store), Workers(store, timing), Rounds(store, timing)
    state.heartbeats = HeartbeatBatcher(state.workers)
    state.report_limit = ConcurrencyLimit(CONCURRENT_REPORTS)
    state.round_call_limit = ConcurrencyLimit(CONCURRENT_ROUND_CALLS)
    state.estimate_limit, state.creation_limit = FairLimit(CONCURRENT_ESTIMATES), FairLimit(CONCURRENT_CREATIONS)


def _in_state(name: str) -> object:
    # A coroutine although it awaits nothing: FastAPI would run a plain function in a thread pool.
    async def read(request: Request) -> object:
        return getattr(request.app.state, name)

    return Depends(read)


CampaignsDependency = Annotated[Campaigns, _in_state("campaigns")]
WorkersDependency = Annotated[Workers, _in_state("workers")]
RoundsDependency = Annotated[Rounds, _in_state("rounds")]
ReportLimit = Annotated[ConcurrencyLimit, _in_state("report_limit")]
RoundCallLimit = Annotated[ConcurrencyLimit, _in_state("round_call_limit")]
EstimateLimit = Annotated[FairLimit, _in_state("estimate_limit")]
CreationLimit = Annotated[FairLimit, _in_state("creation_limit")]
