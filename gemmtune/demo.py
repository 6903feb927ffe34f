"""The demonstration: a recorded campaign, replayed as if live by two workers in the service's own process.

No GPU and no compiler is needed: each candidate takes as long as it took on the H200, and nothing is compiled.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from api.views.kept import Views
from space.devices import DEFAULT_DEVICE
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.errors import TunerError
from tuner.evidence.store import Store
from tuner.fleet.agent.agent import Agent
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest, Timing
from tuner.prediction.files import model_for
from tuner.settings import settings
from workers.errors import WorkerError
from workers.recorded import RecordedWorker
from workers.recording import read_outline

#: The recordings that are replayed: of today's kernels, with finals under every policy.
RECORDINGS: Final = "h200_halves"
#: So many were measured of each problem.
CANDIDATES: Final = 48
#: Tuned first, since the pages are shown by it.
FIRST: Final = Gemm.parse("4096x4096x4096")
WORKERS: Final = ("demo-gpu-0", "demo-gpu-1")
#: Rounds are short and heartbeats frequent, so that there is something to see.
TIMING: Final = Timing(heartbeat_seconds=1.0, round_seconds=6.0)
#: Longest wait for the end of a round.
_END_SECONDS: Final = 20.0
_log = logging.getLogger("gemmtune.demo")


def problems(recordings: Path) -> list[Problem]:
    """All that is recorded, in a fixed random order: every dtype and size comes early."""
    found = [read_outline(path).problem for path in sorted(recordings.glob("*.parquet"))]
    random.Random(0).shuffle(found)
    return sorted(found, key=lambda problem: problem != FIRST)


@contextmanager
def replaying(app: FastAPI, store: Store, recordings: Path, real_time: bool = True) -> Iterator[None]:
    """Replays the recorded campaign as long as the block runs.

    Args:
        recordings: folder of the recorded device.
        real_time: whether candidates take as long as on the GPU.
    """
    shown: Views = app.state.shown
    shown.demo = True
    budget = CampaignBudget(candidates=CANDIDATES)
    request = CampaignRequest("demonstration", tuple(problems(recordings)), ((DEFAULT_DEVICE, "recorded"),), budget)
    Campaigns(store).create(request)
    model_dir = settings().model_dir
    agents = [
        Agent(
            LocalCoordinator(store, TIMING, shown.progress.put),
            lambda: RecordedWorker(recordings, None, real_time, compiles=False), name, idle_seconds=0.5,
            model_of=lambda device: model_for(device, model_dir).model,
        )
        for name in WORKERS
    ]  # fmt: skip
    threads = [threading.Thread(target=_run, args=(agent,), name="demo", daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for agent in agents:
            agent.leave()
        for thread in threads:
            thread.join(_END_SECONDS)


def _run(agent: Agent) -> None:
    try:
        agent.run()
    except (TunerError, WorkerError) as error:
        _log.error("the demonstration ended: %s", error)
