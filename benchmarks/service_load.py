"""Loads the service with many bests, and plain FastAPI on the same machine in the same run.

    python -m benchmarks.service_load --bests 100000 --out benchmarks/results/service_load.md

The service runs as users run it: `gemmtune serve`, tokens asked for, requests logged and counted. wrk
(Debian: apt install wrk) generates the load; at half load its connections pause at random between requests.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx2

from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, fill, put_best
from benchmarks.serving import Running, process, serving
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.settings import database_url

_CONNECTIONS: Final = 32
#: Problems of one batch, the service's limit.
_BATCH: Final = 10_000
_LUA: Final = """
local paths = {}
for line in io.lines("%s") do paths[#paths + 1] = line end
math.randomseed(%d)
request = function() return wrk.format("GET", paths[math.random(#paths)]) end
"""
#: Exponential pauses make arrivals as random as those of many clients.
_PAUSES: Final = """
delay = function() return math.floor(-%f * math.log(1 - math.random()) + 0.5) end
"""


def main() -> None:
    """Fills a store, serves it, applies the load and prints the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bests", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options.add_argument("--turns", type=int, default=5, help="turns of service and bare endpoint")
    options.add_argument("--db", type=Path, help="folder of the store, kept and reused")
    add_out(options)
    given = options.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not here: apt install wrk")
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
        found += [best.problem for _, best in part if not isinstance(best, Exception)]
        after = part[-1][0]
    return found


@dataclass(frozen=True, slots=True)
class Figures:
    """All measured figures.

    Attributes:
        service, plain: requests per second of our service and of the bare endpoint, by turn.
        slow, plain_slow: requests per second, p50 and p99 in ms at half of our service's load.
        batches: ms and bytes of each batch.
        fresh_ms: ms from a best's commit to its answer.
        answer_bytes: bytes of one answer.
        start_mb, end_mb, highest_mb: memory of the service.
    """

    seconds_to_ready: float
    service: list[float]
    plain: list[float]
    slow: list[tuple[float, float, float]]
    plain_slow: list[tuple[float, float, float]]
    batches: list[tuple[float, int]]
    fresh_ms: list[float]
    answer_bytes: int
    start_mb: float
    end_mb: float
    highest_mb: float

    @property
    def ratios(self) -> list[float]:
        """Our service's requests a second over the bare endpoint's, turn by turn."""
        return [ours / bare for ours, bare in zip(self.service, self.plain, strict=True)]

    @property
    def half(self) -> float:
        """Half of our service's load."""
        return statistics.median(self.service) / 2


def measure(folder: Path, db: Path, problems: list[Problem], secret: str, seconds: float, turns: int) -> Figures:
    """Every figure."""
    paths = folder / "paths.txt"
    queries = [f"/v1/best?{urlencode(p.fields())}" for p in problems]
    paths.write_text("\n".join(queries))
    with serving(folder, db) as ours:
        http = httpx2.Client(base_url=f"http://127.0.0.1:{ours.port}", headers={"Authorization": f"Bearer {secret}"})
        start_mb = ours.memory_mb("VmRSS")
        answer = http.get(queries[0]).content
        assert json.loads(answer)["source"] == "measured"
        (folder / "answer.json").write_bytes(answer)
        with serving_bare(folder / "answer.json") as bare:
            load = Load(paths, folder, secret, seconds)
            pairs = [(load.run(bare.port)[0], load.run(ours.port)[0]) for _ in range(turns)]
            plain, service = [turn[0] for turn in pairs], [turn[1] for turn in pairs]
            half = statistics.median(service) / 2
            slow = [(load.run(ours.port, half), load.run(bare.port, half)) for _ in range(turns)]
        return Figures(
            ours.seconds_to_ready, service, plain, [turn[0] for turn in slow], [turn[1] for turn in slow],
            [batch_ms(http, problems, turn) for turn in range(15)],
            [freshness_ms(http, db, turn) for turn in range(10)],
            len(answer), start_mb, ours.memory_mb("VmRSS"), ours.memory_mb("VmHWM"),
        )  # fmt: skip


def report(found: Figures, bests: int) -> list[str]:
    """The table, as lines of Markdown."""
    rate, p50, p99 = (statistics.median(run[place] for run in found.slow) for place in range(3))
    bare99 = statistics.median(run[2] for run in found.plain_slow)
    batches, fresh = found.batches, found.fresh_ms
    load = os.getloadavg()[0]
    return [
        f"{bests:,} bests on {DEVICE} (made-up times), {os.cpu_count()} CPU cores shared with the "
        f"load generators, load average {load:.1f}; answers of about {found.answer_bytes:,} bytes.",
        "",
        "| figure | value |",
        "| --- | --- |",
        f"| from start to ready | {found.seconds_to_ready:.1f} s |",
        f"| GET /v1/best, random problems, {_CONNECTIONS} connections (median of {len(found.service)} turns) "
        f"| {statistics.median(found.service):,.0f} requests/s |",
        f"| bare FastAPI endpoint, in turn with it | {statistics.median(found.plain):,.0f} requests/s |",
        f"| ratio (median of the turns' ratios; lowest {min(found.ratios):.2f}) "
        f"| {statistics.median(found.ratios):.2f} |",
        f"| latency at half that load (of {found.half:,.0f} requests/s, {rate:,.0f} came about): p50, p99 "
        f"| {p50:.2f} ms, {p99:.2f} ms |",
        f"| the bare endpoint's p99 at the same load | {bare99:.2f} ms |",
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

    def run(self, port: int, per_second: float | None = None) -> tuple[float, float, float]:
        """Requests per second, p50 and p99 in ms, at full speed or at about `per_second`.

        Raises:
            RuntimeError: a response was not 2xx, or was missing.
        """
        self._runs += 1
        text = _LUA % (self._paths, self._runs)
        if per_second:
            text += _PAUSES % (_CONNECTIONS / per_second * 1e3)
        script = self._folder / f"{self._runs}.lua"
        script.write_text(text)
        command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{self._seconds:.0f}s", "--latency", "-s", str(script), "-H",
                   f"Authorization: Bearer {self._secret}", f"http://127.0.0.1:{port}"]  # fmt: skip
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if "Non-2xx" in said or "Socket errors" in said:
            raise RuntimeError(said)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
        assert rate is not None, said
        return float(rate[1]), _ms(said, "50%"), _ms(said, "99%")


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
def serving_bare(answer: Path) -> Iterator[Running]:
    """The bare endpoint, ready."""
    command = [sys.executable, "-m", "benchmarks.bare_service"]
    with process(command, answer.with_suffix(".log"), str(answer)) as running:
        yield running


if __name__ == "__main__":
    main()
