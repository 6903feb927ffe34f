"""A fleet on one host: PostgreSQL, the service and an agent pool with one worker per GPU; one is killed and one hangs.

    python -m benchmarks.fleet --out benchmarks/results/fleet_h200.md
    python -m benchmarks.fleet --devices recorded:h200:realtime recorded:h200:realtime

Runs three campaigns of the same problems, each with its own database and cache: with one worker; with one worker per
device; and with one per device while one worker is killed -9 and the GPU process of another is stopped. Recorded
devices replay planted recordings and have no GPU process, so there the worker itself is stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2
import psutil
from sqlalchemy import func, select

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.fleet_table import Faulted, Phase, table
from benchmarks.gpu_use import GpuUse, first_gpus
from benchmarks.installation import Installation
from benchmarks.kill_worker import gpu_process_of
from benchmarks.postgres import Postgres, new_folder, running_postgres
from benchmarks.published import add_out, publish
from benchmarks.storm_audit import audit
from benchmarks.storm_fleet import running
from benchmarks.storm_recordings import plant
from benchmarks.waiting import give_up, say, until, within
from space.kinds.gemm import Gemm
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.codec import utc
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest, CampaignStatus
from tuner.fleet.campaigns.workers import Workers
from tuner.studying.open_worker import every_device

#: m of decoding and prefill, times (n, k) of projections and feed-forward layers.
_M: Final = (1, 16, 64, 128, 512, 2048, 4096, 8192)
_NK: Final = ((4096, 4096), (6144, 4096), (4096, 14_336))
_READY_SECONDS: Final = 60.0
_ROUND_SECONDS: Final = 10


@dataclass(slots=True)
class Options:
    """Options of the measurement.

    Attributes:
        seconds: time limit of one campaign.
    """

    devices: list[str]
    problems: list[Gemm]
    candidates: int
    heartbeat_seconds: float
    seconds: float

    @property
    def recorded(self) -> bool:
        """True if no GPU is used."""
        return self.devices[0].startswith("recorded")

    @property
    def limit_seconds(self) -> float:
        """Seconds within which a lost round must be claimed again."""
        return 2 * self.heartbeat_seconds + 5


@dataclass
class Host:
    """Service and agent pool on a fresh database, until `stop`."""

    folder: Path
    url: str
    options: Options
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self._installed = Installation(
            self.folder, self.url, self.options.heartbeat_seconds, _ROUND_SECONDS, self.folder.parent / "recorded"
        )

    def start_service(self) -> None:
        """`gemmtune serve`, ready."""
        with within(_READY_SECONDS, "a token is made", self.folder):
            self._installed.make_token()
        self.processes.append(service := self._installed.start_service())
        with within(_READY_SECONDS, "the service is ready", self.folder):
            until(lambda: self._ready(service))

    def start_pool(self, devices: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts `gemmtune worker run` on these devices."""
        self.processes.append(pool := self._installed.start_worker(*devices))
        return pool

    def stop(self) -> None:
        """Stops every process started here, workers first."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                say(f"process {process.pid} did not end within 60 s of its SIGTERM: killed")
                process.kill()
                process.wait()

    def _ready(self, service: subprocess.Popen[bytes]) -> bool:
        if service.poll() is not None:
            give_up(f"the service ended with {service.returncode}", [self.folder])
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self._installed.url}/readyz", timeout=5).status_code == 200
        return False


class Run:
    """One campaign on one host."""

    def __init__(self, name: str, postgres: Postgres, folder: Path, devices: Sequence[str], options: Options) -> None:
        self._name, self._devices, self._options = name, list(devices), options
        self._folder = folder / name.replace(" ", "_")
        with within(_READY_SECONDS, f"{name}: a database is there", postgres.folder):
            self._url = postgres.database()

    def measure(self, faults: Callable[[Store, Host, subprocess.Popen[bytes]], Faulted] | None = None) -> Phase:
        """Runs the campaign until it ends."""
        options = self._options
        with ExitStack() as stack:
            store = stack.enter_context(Store.open(self._url))
            host = Host(self._folder, self._url, options)
            stack.callback(host.stop)
            host.start_service()
            pool = host.start_pool(self._devices)
            with within(_READY_SECONDS + 60, f"{len(self._devices)} workers are there", self._folder):
                until(lambda: _workers(store) == len(self._devices))
            use = stack.enter_context(GpuUse(first_gpus(0 if options.recorded else len(self._devices))))
            campaign, started = self._begin(store), time.monotonic()
            struck: Faulted | None = None
            with within(options.seconds, f"{self._name}: the campaign has ended", self._folder):
                if faults is not None:
                    struck = faults(store, host, pool)
                until(lambda: self._ended(store, campaign, host))
            seconds = time.monotonic() - started
            found = audit(store, campaign, struck.struck if struck else (), options.limit_seconds)
            with store.transaction() as session:
                busy = session.scalar(select(func.sum(RoundRow.busy_seconds))) or 0.0
                rounds = session.scalar(select(func.count()).where(RoundRow.status == "done")) or 0
                measured = session.scalar(select(func.sum(RoundRow.measured))) or 0
            return Phase(self._name, len(self._devices), seconds, busy, use.share(), rounds, measured, found, struck)

    def _begin(self, store: Store) -> int:
        options = self._options
        budget = CampaignBudget(candidates=options.candidates, rounds=11)
        device = ("NVIDIA H200", "recorded") if options.recorded else (_model(store), "cuda")
        request = CampaignRequest("fleet", tuple(options.problems), (device,), budget)
        return Campaigns(store).create(request)[0].id

    def _ended(self, store: Store, campaign_id: int, host: Host) -> bool:
        if any(process.poll() is not None for process in host.processes):
            give_up("the service or the agent pool ended", [self._folder])
        found = results.progress(store, campaign_id)
        time.sleep(0.2)
        return found.campaign.status is CampaignStatus.FINISHED


def strike(options: Options) -> Callable[[Store, Host, subprocess.Popen[bytes]], Faulted]:
    """Kills one worker at a third of the campaign, and stops a GPU process at two thirds."""

    def faults(store: Store, host: Host, pool: subprocess.Popen[bytes]) -> Faulted:
        until(lambda: _ended_problems(store) >= len(options.problems) // 3)
        agent, key = _holder(store, pool)
        killed_at = datetime.now(UTC)
        agent.kill()
        say(f"worker {agent.pid} was killed -9 in a round of {key}")
        anew = (_claimed_again(store, key, killed_at) - killed_at).total_seconds()
        until(lambda: _workers(store) == len(options.devices) and len(_agents(pool)) == len(options.devices))
        back = (datetime.now(UTC) - killed_at).total_seconds()
        say(f"its round began anew after {anew:.1f} s, and another worker is there after {back:.1f} s")
        until(lambda: _ended_problems(store) >= 2 * len(options.problems) // 3)
        agent, hung_key = _holder(store, pool)
        gpu_process = gpu_process_of(agent.pid)
        hung_at, victim = datetime.now(UTC), psutil.Process(gpu_process) if gpu_process else agent
        victim.suspend()
        what = "worker" if victim == agent else "GPU process"
        say(f"{what} {victim.pid} was stopped in a round of {hung_key}")
        until(lambda: not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE)
        replaced = (datetime.now(UTC) - hung_at).total_seconds()
        say(f"it was killed after {replaced:.1f} s")
        struck = [("worker killed -9", killed_at, key)]
        hung_anew = (_claimed_again(store, hung_key, hung_at) - hung_at).total_seconds() if victim == agent else None
        return Faulted(struck, anew, back, what, replaced, hung_anew)

    return faults


def _model(store: Store) -> str:
    return Workers(store).page()[0].device


def _workers(store: Store) -> int:
    return len(Workers(store).page())


def _ended_problems(store: Store) -> int:
    time.sleep(0.2)
    found = results.progress(store, 1).problems
    return found["done"] + found["parked"] + found["skipped"]


def _agents(pool: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [child for child in psutil.Process(pool.pid).children() if child.status() != psutil.STATUS_ZOMBIE]


def _holder(store: Store, pool: subprocess.Popen[bytes]) -> tuple[psutil.Process, str]:
    """A worker process that holds a round, and the round's problem."""
    while True:
        agents = {agent.pid: agent for agent in _agents(pool)}
        for name, key in running(store):
            if agent := agents.get(int(name.rpartition("-")[2])):
                return agent, key
        time.sleep(0.05)


def _claimed_again(store: Store, problem_key: str, at: datetime) -> datetime:
    query = select(RoundRow.claimed_at).join(ProblemRow).where(ProblemRow.key == problem_key)
    while True:
        with store.transaction() as session:
            claims = [utc(found) for found in session.scalars(query) if found and utc(found) > at]
        if claims:
            return min(claims)
        time.sleep(0.05)


def measure(options: Options, folder: Path) -> list[Phase]:
    """All three campaigns."""
    with ExitStack() as stack:
        data = new_folder()
        with within(_READY_SECONDS, "PostgreSQL is ready", data):
            postgres = stack.enter_context(running_postgres(durable=True, folder=data))
        one, all_ = options.devices[:1], options.devices
        return [
            Run("one worker", postgres, folder, one, options).measure(),
            Run("a worker a device", postgres, folder, all_, options).measure(),
            Run("one killed, one hung", postgres, folder, all_, options).measure(strike(options)),
        ]


def main() -> None:
    """Prints the table, and fails if a check does not hold."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--devices", nargs="+", help="as for `gemmtune worker run`; by default every GPU here")
    options.add_argument("--problems", type=positive, default=len(_M) * len(_NK))
    options.add_argument("--candidates", type=positive, default=24)
    options.add_argument("--heartbeat", type=float, default=2.0)
    options.add_argument("--seconds", type=float, default=300.0, help="time limit of one campaign")
    add_out(options)
    given = options.parse_args()
    found = every_device()
    devices: list[str] = given.devices or (found * 2 if found[0].startswith("recorded") else found)
    if len(devices) < 2:
        raise WrongInput(f"{devices[0]} is the only device: this needs two, so name another one with --devices")
    # It stays where the run fails, for whoever looks why.
    folder = Path(tempfile.mkdtemp(prefix="gemmtune-fleet-"))
    shapes = [Gemm(m, n, k) for n, k in _NK for m in _M][: given.problems]
    if devices[0].startswith("recorded"):
        say(f"planting {given.problems} recordings")
        shapes = plant(folder / "recorded" / "h200", given.problems, given.candidates)
    phases = measure(Options(devices, shapes, given.candidates, given.heartbeat, given.seconds), folder)
    shutil.rmtree(folder)
    text = table(phases, devices, len(shapes), given.candidates, given.heartbeat, os.cpu_count() or 0)
    print(text)
    publish("fleet", given.out, text)
    if not all(check.holds for phase in phases for check in phase.audit.checks):
        sys.exit(1)


if __name__ == "__main__":
    as_command(main)
