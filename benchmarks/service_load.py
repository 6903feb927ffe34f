"""Loads the service with many bests, and plain FastAPI in turn with it.

    python -m benchmarks.service_load --bests 100000 --out benchmarks/results/service_load.md

The service runs as users run it: `gemmtune serve`, tokens asked for, requests logged and counted. Plain FastAPI runs
under the same server, granian, and under uvicorn; a constant answer without a framework shows what the machine and the
load generator take themselves. Each server has one core to itself while it is loaded, and what generates the load
another: wrk (Debian: apt install wrk), or at half load `benchmarks.paced_load`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx2
import psutil

from benchmarks.command import as_command, positive
from benchmarks.paced_load import latencies_ms
from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, fill, put_best
from benchmarks.serving import Running, compile_imports, process, serving
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence import tokens
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.settings import database_url

_CONNECTIONS: Final = 32
#: Cores of the servers, and of what loads them.
_SERVER_CORE, _CLIENT_CORE = 0, 1
#: Servers of the bare endpoint.
_BARE: Final = ("granian", "uvicorn")
#: Servers at half the service's load; the last one shows what the machine and the load generator take.
_HALF: Final = {
    "service": "the service",
    "granian": "the bare endpoint under granian",
    "constant": "a constant answer without a framework",
}
#: Problems of one batch, the service's limit.
_BATCH: Final = 10_000
_LUA: Final = """
local paths = {}
for line in io.lines("%s") do paths[#paths + 1] = line end
math.randomseed(%d)
request = function() return wrk.format("GET", paths[math.random(#paths)]) end
"""


def main() -> None:
    """Fills a store, serves it, applies the load and prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bests", type=positive, default=100_000)
    options.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options.add_argument("--turns", type=positive, default=5, help="turns of service and bare endpoint")
    options.add_argument("--db", type=Path, help="folder of the store, kept and reused")
    add_out(options)
    given = options.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not here: apt install wrk")
    compile_imports()
    read = [given.db] if given.db and given.db.exists() else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = given.db or folder / "load.db"
        with Store.open(database_url(str(db))) as store:
            problems = stored_problems(store) or list(fill(store, given.bests))
            _, secret = tokens.make(store, f"load-{time.time_ns()}", ["read"])
        found = measure(folder, db, problems, secret, given.seconds, given.turns)
    text = "\n".join(report(found, len(problems)))
    print(text)
    publish("service_load", given.out, text, read=read)


def stored_problems(store: Store) -> list[Problem]:
    """The problems that a store has bests of."""
    found: list[Problem] = []
    after = 0
    while part := store.bests_after(after, 5_000):
        found += [best.problem for _, best in part if isinstance(best, Best)]
        after = part[-1][0]
    return found


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a server.

    Attributes:
        rate: requests per second.
        p50_ms, p99_ms: latency.
        cpu_us: processor time of the server for one request.
        others_percent: of one core, what neither the server nor wrk used; it delays both of them.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    others_percent: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All measured figures.

    Attributes:
        full, half: turns of each server at full load, and at half of the service's; ours is `service`.
        batches: ms and bytes of each batch.
        fresh_ms: ms from a best's commit to its answer.
        answer_bytes: bytes of one answer.
        start_mb, end_mb, highest_mb: memory of the service.
    """

    seconds_to_ready: float
    full: dict[str, list[Turn]]
    half: dict[str, list[Turn]]
    batches: list[tuple[float, int]]
    fresh_ms: list[float]
    answer_bytes: int
    start_mb: float
    end_mb: float
    highest_mb: float

    def median(self, turns: dict[str, list[Turn]], server: str, figure: str) -> float:
        """Median of a server's turns."""
        return float(statistics.median(getattr(turn, figure) for turn in turns[server]))

    def ratios(self, bare: str) -> list[float]:
        """Our service's requests a second over those of a bare endpoint, turn by turn."""
        return [ours.rate / other.rate for ours, other in zip(self.full["service"], self.full[bare], strict=True)]


def measure(folder: Path, db: Path, problems: list[Problem], secret: str, seconds: float, turns: int) -> Figures:
    """Every figure."""
    paths = folder / "paths.txt"
    queries = [f"/v1/best?{urlencode(p.fields())}" for p in problems]
    paths.write_text("\n".join(queries))
    with ExitStack() as servers:
        ours = servers.enter_context(serving(folder, db))
        http = httpx2.Client(base_url=f"http://127.0.0.1:{ours.port}", headers={"Authorization": f"Bearer {secret}"})
        start_mb = ours.memory_mb("VmRSS")
        answer = http.get(queries[0]).content
        assert json.loads(answer)["source"] in ("measured", "stale")
        (folder / "answer.json").write_bytes(answer)
        running = {"service": ours}
        for name in (*_BARE, "constant"):
            running[name] = servers.enter_context(serving_bare(folder / "answer.json", name))
        for server in running.values():
            pin(server.pid)
        render_all(http, problems)
        load = Load(paths, folder, secret, seconds)
        full, half = defaultdict[str, list[Turn]](list), defaultdict[str, list[Turn]](list)
        for _ in range(turns):
            for name in ("service", *_BARE):
                full[name].append(load.run(running[name]))
        rate = statistics.median(turn.rate for turn in full["service"]) / 2
        for _ in range(turns):
            for name in _HALF:
                half[name].append(load.paced(running[name], rate))
        return Figures(
            ours.seconds_to_ready, full, half, [batch_ms(http, problems, turn) for turn in range(15)],
            [freshness_ms(http, db, turn) for turn in range(10)],
            len(answer), start_mb, ours.memory_mb("VmRSS"), ours.memory_mb("VmHWM"),
        )  # fmt: skip


def pin(pid: int) -> None:
    """Gives a server's threads, and those that they start, one core."""
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, {_SERVER_CORE})


def render_all(http: httpx2.Client, problems: list[Problem]) -> None:
    """Asks for every problem, so that the service has rendered all answers and no longer does so beside the load."""
    for first in range(0, len(problems), _BATCH):
        asked = [problem.fields() for problem in problems[first : first + _BATCH]]
        http.post("/v1/best:batch", json={"problems": asked}, timeout=120).raise_for_status()


def report(found: Figures, bests: int) -> list[str]:
    """The table, as lines of Markdown."""
    batches, fresh, cores = found.batches, found.fresh_ms, os.cpu_count()
    full, half = partial(found.median, found.full), partial(found.median, found.half)
    lines = [
        f"{bests:,} bests on {DEVICE} (made-up times), {cores} CPU cores, one for the server and one for wrk, load "
        f"average {os.getloadavg()[0]:.1f}; answers of about {found.answer_bytes:,} bytes.",
        "",
        "| figure | value |",
        "| --- | --- |",
        f"| from start to ready | {found.seconds_to_ready:.1f} s |",
        f"| GET /v1/best, random problems, {_CONNECTIONS} connections (median of {len(found.full['service'])} turns) "
        f"| {full('service', 'rate'):,.0f} requests/s, {full('service', 'cpu_us'):.0f} µs of processor time each |",
    ]
    for bare in _BARE:
        ratios = found.ratios(bare)
        lines += [
            f"| bare FastAPI endpoint under {bare}, in turn with it "
            f"| {full(bare, 'rate'):,.0f} requests/s, {full(bare, 'cpu_us'):.0f} µs |",
            f"| ratio (median of the turns' ratios; lowest, highest) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |",
        ]
    return [
        *lines,
        f"| half of the service's requests per second, at random moments, for each server in turn "
        f"| {half('service', 'rate'):,.0f} requests/s |",
        *(
            f"| {told}: p50, p99 (medians of {len(found.half[name])} turns; lowest, highest p99) "
            f"| {half(name, 'p50_ms'):.2f} ms, {half(name, 'p99_ms'):.2f} ms "
            f"({', '.join(f'{end(turn.p99_ms for turn in found.half[name]):.2f}' for end in (min, max))}); "
            f"{half(name, 'cpu_us'):.0f} µs of processor time each; others {half(name, 'others_percent'):.0f} % of a "
            "core |"
            for name, told in _HALF.items()
        ),
        f"| POST /v1/best:batch, {min(_BATCH, bests):,} problems, {batches[0][1] / 1e6:.0f} MB of answers, to the last "
        f"byte: median, worst of {len(batches)} | {statistics.median(ms for ms, _ in batches):.0f} ms, "
        f"{max(ms for ms, _ in batches):.0f} ms |",
        f"| from a best's commit to its answer: median, worst of {len(fresh)} | {statistics.median(fresh):.0f} ms, "
        f"{max(fresh):.0f} ms |",
        f"| memory of the service: after start, at the end, highest | {found.start_mb:.0f} MB, "
        f"{found.end_mb:.0f} MB, {found.highest_mb:.0f} MB |",
    ]


class Load:
    """wrk on random paths.

    Args:
        paths: a file with one path a line.
        folder: for scripts.
    """

    def __init__(self, paths: Path, folder: Path, secret: str, seconds: float) -> None:
        self._paths, self._folder, self._secret, self._seconds = paths, folder, secret, seconds
        self._runs = 0

    def run(self, server: Running) -> Turn:
        """One turn at full speed.

        Raises:
            RuntimeError: a response was not 2xx, or was missing.
        """
        self._runs += 1
        script = self._folder / f"{self._runs}.lua"
        script.write_text(_LUA % (self._paths, self._runs))
        command = ["taskset", "-c", str(_CLIENT_CORE), "wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{self._seconds:.0f}s"]
        command += ["--latency", "-s", str(script), "-H", f"Authorization: Bearer {self._secret}"]
        command += [f"http://127.0.0.1:{server.port}"]
        spent = Spent(server.pid)
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if "Non-2xx" in said or "Socket errors" in said:
            raise RuntimeError(said)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
        count = re.search(r"(\d+) requests in", said)
        assert rate is not None, said
        assert count is not None, said
        return Turn(float(rate[1]), _ms(said, "50%"), _ms(said, "99%"), *spent.of(int(count[1])))

    def paced(self, server: Running, per_second: float) -> Turn:
        """One turn of `benchmarks.paced_load`, on the same core."""
        self._runs += 1
        paths = self._paths.read_text().splitlines()
        anywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {_CLIENT_CORE})
        try:
            spent = Spent(server.pid)
            ms = latencies_ms(server.port, paths, self._secret, per_second, self._seconds, _CONNECTIONS, self._runs)
            used = spent.of(len(ms))
        finally:
            os.sched_setaffinity(0, anywhere)
        return Turn(len(ms) / self._seconds, ms[len(ms) // 2], ms[int(len(ms) * 0.99)], *used)


class Spent:
    """Processor time since its making."""

    def __init__(self, pid: int) -> None:
        self._pid, self._began = pid, time.monotonic()
        self._server, self._machine = cpu_seconds(pid), busy_seconds()

    def of(self, requests: int) -> tuple[float, float]:
        """Microseconds of the server for each request, and what others used, in percent of a core."""
        server, machine = cpu_seconds(self._pid) - self._server, busy_seconds() - self._machine
        return server / requests * 1e6, (machine - server) / (time.monotonic() - self._began) * 100


def cpu_seconds(pid: int) -> float:
    """Processor time of a process until now."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def busy_seconds() -> float:
    """Processor time of the whole machine until now, without this process and those that it has waited for."""
    machine, ours = psutil.cpu_times(), os.times()
    idle = machine.idle + getattr(machine, "iowait", 0.0)
    return float(sum(machine[:8]) - idle - sum(ours[:4]))


def _ms(said: str, line: str) -> float:
    found = re.search(rf"{line}\s+([\d.]+)(us|ms|s)", said)
    assert found is not None, said
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def batch_ms(http: httpx2.Client, problems: list[Problem], seed: int) -> tuple[float, int]:
    """Milliseconds from the first byte sent to the last byte received, and the bytes received."""
    chosen = random.Random(seed).sample(problems, min(_BATCH, len(problems)))
    asked = [p.fields() for p in chosen]
    body = json.dumps({"problems": asked}).encode()
    begin = time.perf_counter()
    size = 0
    with http.stream("POST", "/v1/best:batch", content=body, headers={"Content-Type": "application/json"}) as response:
        response.raise_for_status()
        for chunk in response.iter_raw():
            size += len(chunk)
    return (time.perf_counter() - begin) * 1e3, size


def freshness_ms(http: httpx2.Client, db: Path, place: int) -> float:
    """Milliseconds from the commit of a new best to its first answer."""
    problem = Gemm(7 + place, 7_919, random.SystemRandom().randrange(1, 1_000_000))
    with Store.open(database_url(str(db))) as store:
        put_best(store, problem)
    begin = time.perf_counter()
    query: dict[str, str | int] = {"m": problem.m, "n": problem.n, "k": problem.k, "require": "measured"}
    while http.get("/v1/best", params=query).status_code != 200:
        time.sleep(0.005)
    return (time.perf_counter() - begin) * 1e3


@contextmanager
def serving_bare(answer: Path, server: str) -> Iterator[Running]:
    """The bare endpoint under a server, ready."""
    command = [sys.executable, "-m", "benchmarks.bare_service", str(answer), server]
    with process(command, answer.with_name(f"{server}.log")) as running:
        yield running


if __name__ == "__main__":
    as_command(main)
