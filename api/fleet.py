"""Shared by the endpoints of campaigns, workers and rounds: their dependencies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Request

from api.concurrency import CONCURRENT_REPORTS, CONCURRENT_ROUND_CALLS, ConcurrencyLimit
from api.heartbeats import HeartbeatBatcher
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import Timing
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers


def install(app: FastAPI, timing: Timing) -> None:
    """Puts the timing, the heartbeat batcher and the limits into the app's state."""
    app.state.timing = timing
    app.state.heartbeats = HeartbeatBatcher(Workers(app.state.store, timing))
    app.state.report_limit = ConcurrencyLimit(CONCURRENT_REPORTS)
    app.state.round_call_limit = ConcurrencyLimit(CONCURRENT_ROUND_CALLS)


# Coroutines although they await nothing: FastAPI would run plain functions in a thread pool.
async def _campaigns(request: Request) -> Campaigns:
    return Campaigns(request.app.state.store)


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
