"""Start and memory of a service with many bests.

    python -m benchmarks.service_start --bests 100000 1000000 --out benchmarks/results/service_start.md

The service runs as users run it, on SQLite and on PostgreSQL. From its first byte on, one client asks for random bests,
one after the other; the pages are asked for at the moment when the service says that it is ready.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx2
import psutil

from benchmarks.command import as_command, positive
from benchmarks.postgres import running_postgres
from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, fill
from benchmarks.serving import compile_imports, serving
from space.kind import problem_from_key
from tuner.evidence import tokens
from tuner.evidence.store import Store

_MOST_SECONDS: Final = 600.0
#: Bests that are asked for, at random.
_ASKED: Final = 20_000
#: How long answers are asked for after the start.
_AFTER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Start:
    """What one start took.

    Attributes:
        first_answer_s: from the process's start to the first exact answer.
        ready_s: to `/readyz`.
        ready_cpu_s: processor time until then, imports included.
        before_ms: latency of exact answers before it was ready, in order of size.
        after_ms: the same in the seconds after it, most of them not rendered.
        first_pages_ms, second_pages_ms: `GET /v1/bests` and `GET /`, at once when it was ready, and again.
        ready_mb, highest_mb: resident memory when it was ready, and the highest until the end.
    """

    bests: int
    first_answer_s: float
    ready_s: float
    ready_cpu_s: float
    before_ms: list[float]
    after_ms: list[float]
    first_pages_ms: tuple[float, float]
    second_pages_ms: tuple[float, float]
    ready_mb: float
    highest_mb: float


def main() -> None:
    """Fills the stores, starts a service on each and prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bests", type=positive, nargs="+", default=[100_000])
    options.add_argument("--stores", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    options.add_argument("--turns", type=positive, default=3, help="starts of each service")
    add_out(options)
    given = options.parse_args()
    compile_imports()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for kind in given.stores:
            with stores(kind, Path(name)) as new_store:
                for bests in given.bests:
                    url = new_store(bests)
                    lines.append(row(kind, [measure(url, Path(name)) for _ in range(given.turns)]))
                    print(lines[-1], flush=True)
    text = "\n".join([*heading(given.turns), *lines])
    publish("service_start", given.out, text)


def measure(url: str, folder: Path) -> Start:
    """One start of the service on a filled store."""
    with Store.open(url) as store:
        keys = [key for _, _, rows in store.best_index(100_000) for key, *_ in rows]
        _, secret = tokens.make(store, f"start-{time.time_ns()}", ["read"])
    chosen = random.Random(0).sample(keys, min(_ASKED, len(keys)))
    paths = iter([f"/v1/best?{urlencode(problem_from_key(key).fields())}" for key in chosen])
    before: list[float] = []
    with serving(folder, url, wait=False) as running:
        process = psutil.Process(running.pid)
        http = httpx2.Client(
            base_url=f"http://127.0.0.1:{running.port}", headers={"Authorization": f"Bearer {secret}"}, timeout=30
        )
        first_answer = _first_answer(http, next(paths), running.began)
        while http.get("/readyz").status_code != 200:
            before.append(asked_ms(http, next(paths)))
        ready, spent, ready_mb = time.monotonic() - running.began, process.cpu_times(), running.memory_mb("VmRSS")
        first_pages = pages_ms(http)
        second_pages = pages_ms(http)
        until, after = time.monotonic() + _AFTER_SECONDS, list[float]()
        while time.monotonic() < until and (path := next(paths, None)):
            after.append(asked_ms(http, path))
        return Start(
            len(keys), first_answer, ready, spent.user + spent.system, before, after, first_pages, second_pages,
            ready_mb, running.memory_mb("VmHWM"),
        )  # fmt: skip


def _first_answer(http: httpx2.Client, path: str, began: float) -> float:
    while time.monotonic() < began + _MOST_SECONDS:
        try:
            if http.get(path).status_code == 200:
                return time.monotonic() - began
        except httpx2.TransportError:
            pass
        time.sleep(0.02)
    raise RuntimeError("the service did not answer")


def asked_ms(http: httpx2.Client, path: str) -> float:
    """Milliseconds of one exact question, which has to be answered."""
    begin = time.perf_counter()
    answer = http.get(path)
    took = (time.perf_counter() - begin) * 1e3
    assert answer.json()["source"] in ("measured", "stale"), answer.text
    return took


def pages_ms(http: httpx2.Client) -> tuple[float, float]:
    """Milliseconds of the first page of bests, as JSON and as HTML."""
    took = []
    for path in (f"/v1/bests?{urlencode({'device': DEVICE})}", "/"):
        begin = time.perf_counter()
        http.get(path).raise_for_status()
        took.append((time.perf_counter() - begin) * 1e3)
    return took[0], took[1]


def heading(turns: int) -> list[str]:
    """The text before the rows."""
    return [
        f"{os.cpu_count()} CPU cores shared with the client; load average {os.getloadavg()[0]:.1f}. Medians of {turns} "
        f"starts, imports of the process included; made-up times.",
        "",
        "| store | bests | first exact answer | ready (processor time) | exact answers until then: p50, worst "
        f"| in the {_AFTER_SECONDS:.0f} s after it: p50, p99 | first page at once: JSON, HTML | again "
        "| memory when ready, highest |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]


def row(kind: str, starts: list[Start]) -> str:
    """One row of the table."""

    def middle(name: str) -> float:
        return float(statistics.median(getattr(start, name) for start in starts))

    def pages(name: str) -> str:
        json, html = (statistics.median(getattr(start, name)[place] for start in starts) for place in (0, 1))
        return f"{json:.0f} ms, {html:.0f} ms"

    before = sorted(ms for start in starts for ms in start.before_ms)
    after = sorted(ms for start in starts for ms in start.after_ms)
    waited = f"{statistics.median(before):.1f} ms, {before[-1]:.0f} ms" if before else "none asked"
    return (
        f"| {kind} | {starts[0].bests:,} | {middle('first_answer_s'):.1f} s "
        f"| {middle('ready_s'):.1f} s ({middle('ready_cpu_s'):.1f} s) | {waited} "
        f"| {statistics.median(after):.1f} ms, {after[int(len(after) * 0.99)]:.1f} ms "
        f"| {pages('first_pages_ms')} | {pages('second_pages_ms')} "
        f"| {middle('ready_mb'):.0f} MB, {max(start.highest_mb for start in starts):.0f} MB |"
    )


@contextmanager
def stores(kind: str, folder: Path) -> Iterator[Callable[[int], str]]:
    """Makes filled stores of one kind; the value is called with a number of bests, and returns a URL."""

    def filled(url: str, bests: int) -> str:
        with Store.open(url) as store:
            fill(store, bests)
        return url

    if kind == "sqlite":
        yield lambda bests: filled(f"sqlite:///{folder}/{bests}.db", bests)
    else:
        with running_postgres() as server:
            yield lambda bests: filled(server.database(), bests)


if __name__ == "__main__":
    as_command(main)
