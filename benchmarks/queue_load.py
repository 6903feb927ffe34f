"""Load on the queue: a backlog of 100,000 problems, 1,000 workers that beat, claim, begin, announce and report.

    python -m benchmarks.queue_load --problems 100000 --workers 1000 --seconds 60 --out benchmarks/results/F.md

PostgreSQL and `gemmtune serve` are processes of their own; the workers are coroutines of this one, on the same
machine, over HTTP. A round lasts a while, as on a GPU, and reports 16 measurements.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from benchmarks.postgres import running_postgres
from benchmarks.storm_recordings import measured, some_configs
from space.problem import Problem
from tuner import tokens
from tuner.agent.http import measurement_document
from tuner.campaigns.campaigns import Campaigns
from tuner.campaigns.problems import MOST_PROBLEMS
from tuner.campaigns.records import CampaignBudget, CampaignRequest
from tuner.store.store import Store
from workers.measurement import DeviceFacts, Provenance

_CANDIDATES: Final = 16
_HEARTBEAT_SECONDS: Final = 5.0


@dataclass(slots=True)
class Seen:
    """What the workers saw.

    Attributes:
        ms: latencies by kind of call.
        answers: statuses by kind of call.
    """

    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)


class Gone(Exception):
    """The service counts a worker as gone, or its round as lost."""


class SimulatedWorker:
    """One worker: beats every five seconds, and runs rounds one after the other."""

    def __init__(self, http: httpx2.AsyncClient, number: int, seen: Seen, round_seconds: float) -> None:
        self._http, self._number, self._seen, self._round_seconds = http, number, seen, round_seconds
        self._id, self._round = 0, 0
        uuid = f"GPU-{number:04d}"
        self._facts = DeviceFacts("NVIDIA H200", "sm_90a", "cuda", uuid, "580.0", 132, 60 * 2**20)
        self._provenance = asdict(Provenance("NVIDIA H200", uuid, "580.0", "13.0", "0" * 64, "130100", "0.1.0", number))

    def watch(self, seen: Seen) -> None:
        """Notes in `seen` what follows."""
        self._seen = seen

    async def register(self) -> None:
        """Dials in."""
        said = await self._call("register", "/v1/workers", {"name": f"w{self._number}", "facts": asdict(self._facts)})
        self._id = said["worker_id"]

    async def beat(self) -> None:
        """For ever."""
        await asyncio.sleep(random.uniform(0, _HEARTBEAT_SECONDS))
        while True:
            try:
                await self._call("heartbeat", f"/v1/workers/{self._id}:heartbeat", {"round_id": self._round or None})
            except Gone:
                await self.register()
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def work(self) -> None:
        """For ever."""
        await asyncio.sleep(random.uniform(0, self._round_seconds))
        while True:
            self._round = 0
            try:
                task = await self._call("claim", f"/v1/workers/{self._id}:claim", None)
                if task is not None:
                    self._round = task["round_id"]
                    await self._run(task)
                    continue
            except Gone:
                pass
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _run(self, task: dict[str, Any]) -> None:
        path, lease = f"/v1/rounds/{task['round_id']}", task["lease"]
        past = await self._call("begin", f"{path}:begin", {"lease": lease, "provenance": self._provenance})
        problem = Problem.from_key(task["problem_key"])
        tried = {entry["config"] for entry in past["tried"]}
        configs = [config for config in some_configs(4 * _CANDIDATES) if config.key not in tried][:_CANDIDATES]
        keys = [config.key for config in configs]
        await self._call("announce", f"{path}:announce", {"lease": lease, "stage": "screen", "configs": keys})
        await asyncio.sleep(self._round_seconds * random.uniform(0.8, 1.2))
        taken = [measured(config, problem, 1e5 + place, "screen") for place, config in enumerate(configs)]
        body = {
            "lease": lease, "problem_key": task["problem_key"], "provenance": self._provenance,
            "measurements": [measurement_document(entry) for entry in taken],
            "busy_seconds": self._round_seconds * 0.7,
        }  # fmt: skip
        await self._call("finish", f"{path}:finish", body)

    async def _call(self, kind: str, path: str, body: object) -> Any:  # noqa: ANN401  (JSON)
        started = time.perf_counter()
        response = await self._http.post(path, json=body)
        self._seen.ms[kind].append((time.perf_counter() - started) * 1e3)
        self._seen.answers[kind, response.status_code] += 1
        if response.status_code == 409:
            raise Gone(response.text[:300])
        if response.status_code >= 400:
            raise RuntimeError(f"{kind}: {response.status_code} {response.text[:300]}")
        return response.json() if response.content else None


async def load(
    url: str, token: str, workers: int, working: int, seconds: float, round_seconds: float
) -> tuple[Seen, Seen]:
    """The workers for a while; what they saw while they registered, and after everything had settled.

    Args:
        working: how many of them run rounds; the others only beat.
    """
    limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60) as http:
        starting, settled = Seen(), Seen()
        fleet = [SimulatedWorker(http, number, starting, round_seconds) for number in range(workers)]
        running: list[asyncio.Task[None]] = []
        try:
            for start in range(0, workers, 20):
                await asyncio.gather(*(worker.register() for worker in fleet[start : start + 20]))
                running += [asyncio.create_task(worker.beat()) for worker in fleet[start : start + 20]]
            running += [asyncio.create_task(worker.work()) for worker in fleet[:working]]
            # One round each, until claims are spread evenly.
            await _wait(running, round_seconds + _HEARTBEAT_SECONDS)
            for worker in fleet:
                worker.watch(settled)
            await _wait(running, seconds)
        finally:
            for job in running:
                job.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return starting, settled


async def _wait(running: list[asyncio.Task[None]], seconds: float) -> None:
    done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for job in done:
        await job


def main() -> None:
    """Makes the backlog, runs the load, prints the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--problems", type=int, default=100_000)
    options.add_argument("--workers", type=int, default=1_000)
    options.add_argument("--working", type=int, help="workers that run rounds; all by default, the others only beat")
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--round-seconds", type=float, default=40.0)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_postgres(durable=True) as postgres:
        url = postgres.database()
        with Store.open(url) as store:
            _, secret = tokens.make(store, "load", ["work", "read"])
            made_in = backlog(store, given.problems)
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = probe.getsockname()[1]
            settings = ["env", f"GEMMTUNE_DB={url}", "GEMMTUNE_REQUESTS_PER_SECOND=0"]
            command = [*settings, sys.executable, "-m", "tuner.cli", "serve", "--port", str(port)]
            with (Path(folder) / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as service:
                try:
                    wait_for(port)
                    process = psutil.Process(service.pid)
                    before, started = process.cpu_times(), time.perf_counter()
                    _, seen = asyncio.run(
                        load(f"http://127.0.0.1:{port}", secret, given.workers, given.working or given.workers,
                             given.seconds, given.round_seconds)
                    )
                    after, wall = process.cpu_times(), time.perf_counter() - started
                    cores = (after.user + after.system - before.user - before.system) / wall
                    megabytes = process.memory_info().rss / 1e6
                finally:
                    service.kill()
            left = store.counts()["campaign_problem"]
    text = table(given, seen, made_in, left, cores, megabytes)
    print(text)
    if given.out:
        shown = shlex.join(["python", "-m", "benchmarks.queue_load", *sys.argv[1:]])
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(f"`{shown}`\n\n{text}\n")


def backlog(store: Store, problems: int) -> float:
    """Makes campaigns of `problems` problems altogether; the seconds that it took."""
    started = time.perf_counter()
    for first in range(0, problems, MOST_PROBLEMS):
        numbers = range(first, min(first + MOST_PROBLEMS, problems))
        found = tuple(Problem(4096 + 64 * (n % 1_000), 4096 + 64 * (n // 1_000), 4096) for n in numbers)
        budget = CampaignBudget(candidates=96, rounds=11)
        Campaigns(store).create(CampaignRequest(f"load {first}", found, (("NVIDIA H200", "cuda"),), budget))
    return time.perf_counter() - started


def wait_for(port: int) -> None:
    """Until the service listens."""
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def table(given: argparse.Namespace, seen: Seen, made_in: float, rows: int, cores: float, megabytes: float) -> str:
    """What was seen once everything had settled."""
    lines = [
        f"{given.problems:,} problems queued (made in {made_in:.1f} s), {given.workers:,} workers of which "
        f"{given.working or given.workers:,} run rounds of "
        f"{given.round_seconds:g} s with {_CANDIDATES} measurements, {given.seconds:g} s long; {rows:,} problems "
        f"in the tables. The service used {cores:.2f} cores and {megabytes:.0f} MB; PostgreSQL (fsync on), the service "
        f"and the simulated workers shared {psutil.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}.",
        "", "| call | a second | p50 ms | p95 ms | p99 ms | max ms | answers |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for kind in ("claim", "heartbeat", "begin", "announce", "finish"):
        ms = sorted(seen.ms[kind])
        if not ms:
            continue
        cuts = statistics.quantiles(ms, n=100) if len(ms) > 1 else ms * 99
        answers = ", ".join(f"{count} × {status}" for (of, status), count in sorted(seen.answers.items()) if of == kind)
        lines.append(
            f"| {kind} | {len(ms) / given.seconds:.1f} | {cuts[49]:.1f} | {cuts[94]:.1f} | {cuts[98]:.1f} | "
            f"{ms[-1]:.1f} | {answers} |"
        )  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
