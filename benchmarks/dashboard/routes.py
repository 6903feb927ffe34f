"""Times the column routes, which pages read most, and what open pages cost everybody else."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from benchmarks.open_pages import open_pages
from benchmarks.service_table import DEVICE, put_best
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence.store import Store

_TURNS: Final = 12
_REPEATS: Final = 7
#: A fleet of eight GPUs ends a round about this often.
_COMMIT_SECONDS: Final = 2.0
_NUMBERS: Final = count()


def ask(connection: http.client.HTTPConnection, path: str, request_id: str) -> None:
    """Reads one answer."""
    connection.request("GET", path, headers={"Accept-Encoding": "zstd", "X-Request-Id": request_id})
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, (path, response.status, body[:300])


def column_times(port: int, log: Path, store: Store, problem: Problem) -> dict[tuple[str, str], float]:
    """Milliseconds of the column routes, by route and moment: first, changed, kept; medians of the last two.

    They are those that the service writes into its log: from a request's arrival until the answer's last byte is sent.

    Args:
        problem: whose measurements are read.
    """
    routes = {"bests:columns": f"/v1/bests:columns?device={quote(DEVICE)}",
              "measurements:columns": f"/v1/measurements:columns?problem={quote(problem.key)}"}  # fmt: skip
    asked: list[tuple[str, str]] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask_all(moment: str) -> None:
        for name, path in routes.items():
            ask(connection, path, f"columns-{len(asked)}")
            asked.append((name, moment))

    ask_all("first")
    for turn in range(_REPEATS):
        put_best(store, Gemm.of(50_001 + turn, 64, 64))
        ask_all("changed")
    for _ in range(_REPEATS):
        ask_all("kept")
    connection.close()
    taken: dict[tuple[str, str], list[float]] = {}
    for what, ms in zip(asked, logged_ms(log, [f"columns-{number}" for number in range(len(asked))]), strict=True):
        taken.setdefault(what, []).append(ms)
    return {what: statistics.median(each) for what, each in taken.items()}


def logged_ms(log: Path, request_ids: Sequence[str]) -> list[float]:
    """What a service's log says of requests; it is written a few times a second."""
    for _ in range(100):
        lines = [json.loads(line) for line in log.read_text().splitlines() if '"event": "request"' in line]
        found = {line["request_id"]: line["ms"] for line in lines}
        if found.keys() >= set(request_ids):
            break
        time.sleep(0.1)
    return [found[request_id] for request_id in request_ids]


def share_beside_pages(port: int, store: Store, problem: Problem, seconds: float) -> float:
    """Rate of answers beside open pages over that without, the median of alternating turns; all beside commits."""
    shares = []
    for turn in range(_TURNS):
        # Each order as often: a machine that gets slower must favour neither.
        rates = {}
        for beside in (turn % 2 == 0, turn % 2 == 1):
            with open_pages(port, DEVICE, problem.key) if beside else nullcontext(), commits(store):
                rates[beside] = answers(port, f"/v1/best?{urlencode(problem.fields())}", seconds)
        shares.append(rates[True] / rates[False])
    return statistics.median(shares)


@contextmanager
def commits(store: Store) -> Iterator[None]:
    """A new best with its measurement every `_COMMIT_SECONDS`, as long as the block runs."""
    ended = threading.Event()

    def commit() -> None:
        while not ended.wait(_COMMIT_SECONDS):
            put_best(store, Gemm.of(200_001 + next(_NUMBERS), 64, 64))

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def answers(port: int, path: str, seconds: float) -> float:
    """Answers a second over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answered, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        answered += 1
    connection.close()
    return answered / (time.perf_counter() - began)
