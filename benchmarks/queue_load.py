"""Load on the queue: a backlog of 100,000 problems, 1,000 workers that beat, claim, begin, announce and report.

    python -m benchmarks.queue_load --problems 100000 --workers 1000 --seconds 60 --out benchmarks/results/F.md

PostgreSQL and `gemmtune serve` run in their own processes; the workers are coroutines of this one and use HTTP. A round
takes as long as on a GPU and reports 16 measurements.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.command import as_command, positive
from benchmarks.line import Line
from benchmarks.postgres import running_postgres
from benchmarks.published import add_out, publish
from benchmarks.serving import serving
from benchmarks.storm_recordings import measured, some_configs
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import measurement_document
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest
from tuner.tables.problems import MOST_PROBLEMS
from workers.measurement import SCREENING, DeviceFacts, Measurement, Provenance

_CANDIDATES: Final = 16
#: Of one problem, at most: problems that have begun go first, so a worker may get the same one again and again.
_ROUNDS: Final = 64
_HEARTBEAT_SECONDS: Final = 5.0
#: Seconds between checks that the simulated workers run on time.
_LOOK_SECONDS: Final = 0.02


@dataclass(slots=True)
class Seen:
    """Latencies and answers that the workers saw.

    Attributes:
        ms: latencies by kind of call.
        answers: statuses by kind of call.
        late_ms: delay of the workers' own process when a worker was due. Each latency contains about this much.
    """

    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    late_ms: list[float] = field(default_factory=list)

    async def watch_loop(self) -> None:
        """For ever."""
        while True:
            due = time.perf_counter() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self.late_ms.append((time.perf_counter() - due) * 1e3)


class Gone(Exception):
    """The service has declared a worker gone, or its round lost."""


class SimulatedWorker:
    """One worker: sends heartbeats every five seconds and runs rounds one after the other, on a connection each."""

    def __init__(self, port: int, token: str, number: int, seen: Seen, round_seconds: float) -> None:
        self._beats, self._works = Line("127.0.0.1", port, token), Line("127.0.0.1", port, token)
        self._number, self._seen, self._round_seconds = number, seen, round_seconds
        self._id, self._round = 0, 0
        uuid = f"GPU-{number:04d}"
        self._facts = DeviceFacts("NVIDIA H200", "sm_90a", "cuda", uuid, "580.0", 132, 60 * 2**20)
        self._provenance = asdict(Provenance("NVIDIA H200", uuid, "580.0", "13.0", "0" * 64, "130100", "0.1.0", number))

    def watch(self, seen: Seen) -> None:
        """Notes in `seen` what follows."""
        self._seen = seen

    def hang_up(self) -> None:
        """Closes its lines."""
        self._beats.close()
        self._works.close()

    async def register(self) -> None:
        """Dials in."""
        body = {"name": f"w{self._number}", "facts": asdict(self._facts)}
        said = await self._call(self._beats, "register", "/v1/workers", _bytes(body))
        self._id = said["worker_id"]

    async def beat(self) -> None:
        """For ever."""
        await asyncio.sleep(random.uniform(0, _HEARTBEAT_SECONDS))
        while True:
            held = b'{"round_id": %d}' % self._round if self._round else b"{}"
            try:
                await self._call(self._beats, "heartbeat", f"/v1/workers/{self._id}:heartbeat", held)
            except Gone:
                await self.register()
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def work(self) -> None:
        """For ever."""
        await asyncio.sleep(random.uniform(0, self._round_seconds))
        while True:
            self._round = 0
            try:
                task = await self._call(self._works, "claim", f"/v1/workers/{self._id}:claim", b"")
                if task is not None:
                    self._round = task["round_id"]
                    await self._run(task)
                    continue
            except Gone:
                pass
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _run(self, task: dict[str, Any]) -> None:
        path, lease = f"/v1/rounds/{task['round_id']}", task["lease"]
        begun = _bytes({"lease": lease, "provenance": self._provenance})
        past = await self._call(self._works, "begin", f"{path}:begin", begun)
        tried = {entry["config"] for entry in past["tried"]}
        keys = [key for key in _documents() if key not in tried][:_CANDIDATES]
        announced = _bytes({"lease": lease, "stage": "screen", "configs": keys})
        await self._call(self._works, "announce", f"{path}:announce", announced)
        await asyncio.sleep(self._round_seconds * random.uniform(0.8, 1.2))
        problem = problem_from_key(task["problem_key"])
        elements = f'"elements": {problem.output_elements}'
        taken = ", ".join(_documents()[key] for key in keys).replace('"elements": 0', elements)
        about = _bytes({
            "lease": lease, "problem_key": task["problem_key"], "provenance": self._provenance,
            "busy_seconds": self._round_seconds * 0.7,
        })  # fmt: skip
        body = about[:-1] + b', "measurements": [%s]}' % taken.encode()
        await self._call(self._works, "finish", f"{path}:finish", body)

    async def _call(self, line: Line, kind: str, path: str, body: bytes) -> Any:  # noqa: ANN401  (JSON)
        started = time.perf_counter()
        answer = await line.post(path, body)
        self._seen.ms[kind].append((time.perf_counter() - started) * 1e3)
        self._seen.answers[kind, answer.status] += 1
        if answer.status == 409:
            raise Gone(answer.body[:300].decode())
        if answer.status >= 400:
            raise RuntimeError(f"{kind}: {answer.status} {answer.body[:300].decode()}")
        return json.loads(answer.body) if answer.body else None


@cache
def _documents() -> dict[str, str]:
    """Report entries of measurements by config, without elements; built once for all rounds."""
    found = dict[str, str]()
    for one in screenings(Gemm.parse("4096x4096x4096")):
        document = measurement_document(one)
        found[one.config.key] = json.dumps(document | {"verification": document["verification"] | {"elements": 0}})
    return found


def screenings(problem: Gemm) -> list[Measurement]:
    """What a worker measures of a problem, at times that every card exceeds, under the policy of a GPU's screenings."""
    configs = enumerate(some_configs(_ROUNDS * _CANDIDATES))
    return [replace(measured(config, problem, 1e5 + place, "screen"), policy=SCREENING) for place, config in configs]


def _bytes(body: object) -> bytes:
    return json.dumps(body).encode()


async def load(port: int, token: str, workers: int, working: int, seconds: float, round_seconds: float) -> Seen:
    """Runs the workers for a while; returns their statistics after the start-up.

    Args:
        working: how many of them run rounds; the others only send heartbeats.
    """
    starting, settled = Seen(), Seen()
    _documents()
    fleet = [SimulatedWorker(port, token, number, starting, round_seconds) for number in range(workers)]
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
        running.append(asyncio.create_task(settled.watch_loop()))
        await _wait(running, seconds)
    finally:
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for worker in fleet:
            worker.hang_up()
    return settled


async def _wait(running: list[asyncio.Task[None]], seconds: float) -> None:
    done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for job in done:
        await job


def main() -> None:
    """Makes the backlog, runs the load, prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--problems", type=positive, default=100_000)
    options.add_argument("--workers", type=positive, default=1_000)
    options.add_argument("--working", type=int, help="workers that run rounds, all by default; others only beat")
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--round-seconds", type=float, default=40.0)
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_postgres(durable=True) as postgres:
        url = postgres.database()
        with Store.open(url) as store:
            _, secret = tokens.make(store, "load", ["work", "read"])
            made_in = backlog(store, given.problems)
            with serving(Path(folder), url) as service:
                process = psutil.Process(service.pid)
                before, started = process.cpu_times(), time.perf_counter()
                working = given.working or given.workers
                seen = asyncio.run(
                    load(service.port, secret, given.workers, working, given.seconds, given.round_seconds)
                )
                after, wall = process.cpu_times(), time.perf_counter() - started
                cores = (after.user + after.system - before.user - before.system) / wall
                megabytes = process.memory_info().rss / 1e6
            left = store.counts()["campaign_problem"]
    text = table(given, seen, made_in, left, cores, megabytes)
    print(text)
    publish("queue_load", given.out, text)


def backlog(store: Store, problems: int) -> float:
    """Creates campaigns with `problems` problems altogether; returns the seconds that it took."""
    started = time.perf_counter()
    for first in range(0, problems, MOST_PROBLEMS):
        numbers = range(first, min(first + MOST_PROBLEMS, problems))
        found = tuple(Gemm(4096 + 64 * (n % 1_000), 4096 + 64 * (n // 1_000), 4096) for n in numbers)
        budget = CampaignBudget(candidates=96, rounds=11)
        Campaigns(store).create(CampaignRequest(f"load {first}", found, (("NVIDIA H200", "cuda"),), budget))
    return time.perf_counter() - started


def table(given: argparse.Namespace, seen: Seen, made_in: float, rows: int, cores: float, megabytes: float) -> str:
    """The report: statistics after the start-up."""
    late = statistics.quantiles(seen.late_ms, n=100)
    lines = [
        f"{given.problems:,} problems queued (made in {made_in:.1f} s), {given.workers:,} workers of which "
        f"{given.working or given.workers:,} run rounds of "
        f"{given.round_seconds:g} s with {_CANDIDATES} measurements, {given.seconds:g} s long; {rows:,} problems "
        f"in the tables. The service used {cores:.2f} cores and {megabytes:.0f} MB; PostgreSQL (fsync on), the service "
        f"and the simulated workers shared {psutil.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}. The "
        f"simulated workers' own process was late by {late[49]:.1f} ms (p50), {late[94]:.1f} ms (p95).",
        "", "| call | a second | p50 ms | p95 ms | p99 ms | max ms | answers |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for kind in ("claim", "heartbeat", "begin", "announce", "finish"):
        ms = sorted(seen.ms[kind])
        if not ms:
            continue
        cuts = statistics.quantiles(ms, n=100, method="inclusive") if len(ms) > 1 else ms * 99
        answers = ", ".join(f"{count} × {status}" for (of, status), count in sorted(seen.answers.items()) if of == kind)
        lines.append(
            f"| {kind} | {len(ms) / given.seconds:.1f} | {cuts[49]:.1f} | {cuts[94]:.1f} | {cuts[98]:.1f} | "
            f"{ms[-1]:.1f} | {answers} |"
        )  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    as_command(main)
