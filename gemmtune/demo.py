"""The demonstration: a recorded campaign, replayed as if live by two workers in the service's own process.

No GPU and no compiler is needed: each candidate takes as long as it took on the H200, and nothing is compiled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from api.views.kept import Views
from space.devices import DEFAULT_DEVICE
from space.kinds.gemm import Gemm
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

#: Shape, dtype and layout of the problems, in this order: large and small ones, weights at several M, every dtype.
SHAPES: Final = (
    ("4096x4096x4096", "bf16", "nt"), ("16x28672x4096", "bf16", "nt"), ("512x512x512", "bf16", "nt"),
    ("128x28672x4096", "bf16", "nt"), ("2048x28672x4096", "bf16", "nt"), ("64x4096x7168", "fp8_e4m3", "nt"),
    ("8x6144x4096", "bf16", "nt"), ("32x6144x4096", "bf16", "nt"), ("64x6144x4096", "bf16", "nt"),
    ("256x6144x4096", "bf16", "nt"), ("2048x6144x4096", "bf16", "nt"), ("8192x6144x4096", "bf16", "nt"),
    ("1x4096x14336", "bf16", "nt"), ("4095x4097x4104", "bf16", "nt"), ("2048x2048x2048", "tf32", "nt"),
    ("2048x2048x2048", "int8", "nt"), ("128x2112x7168", "fp16", "nt"), ("128x128x65536", "bf16", "nt"),
    ("1x2112x7168", "fp8_e4m3", "nt"), ("20x7168x2048", "fp8_e4m3", "nt"), ("4096x14336x8192", "bf16", "tn"),
    ("8192x4096x28672", "bf16", "nn"), ("16x2112x7168", "bf16", "nt"), ("8192x8192x8192", "bf16", "nt"),
)  # fmt: skip
WORKERS: Final = ("demo-gpu-0", "demo-gpu-1")
#: Rounds are short and heartbeats frequent, so that there is something to see.
TIMING: Final = Timing(heartbeat_seconds=1.0, round_seconds=6.0)
#: Longest wait for the end of a round.
_END_SECONDS: Final = 20.0
_log = logging.getLogger("gemmtune.demo")


def problems() -> list[Gemm]:
    return [Gemm.parse(shape, dtype, layout) for shape, dtype, layout in SHAPES]


@contextmanager
def replaying(app: FastAPI, store: Store, recordings: Path, real_time: bool = True) -> Iterator[None]:
    """Replays the recorded campaign as long as the block runs.

    Args:
        recordings: folder of the recorded device.
        real_time: whether candidates take as long as on the GPU.
    """
    shown: Views = app.state.shown
    shown.demo = True
    budget = CampaignBudget(candidates=96)
    request = CampaignRequest("demonstration", tuple(problems()), ((DEFAULT_DEVICE, "recorded"),), budget)
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
