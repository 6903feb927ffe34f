"""Times the routes that pages read most, and what open pages cost everybody else.

    python -m benchmarks.dashboard_routes --out benchmarks/results/dashboard_routes.md

A store of made-up bests and measurements (`benchmarks.service_table`) is served in a process of its own. `first` is the
first answer after a start, `kept` the median of further ones, `changed` one after a new best with its measurement.
Bytes are those of zstandard. Answers of `/v1/best` are counted in turns without and with 20 open pages
(`benchmarks.open_pages`), while a new best is committed every 2 s.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from sqlalchemy import text

from benchmarks.open_pages import open_pages
from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, fill, put_best
from benchmarks.serving import serving
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence.store import Store
from tuner.settings import database_url

_TURNS: Final = 12
_REPEATS: Final = 7
#: A fleet of eight GPUs ends a round about this often.
_COMMIT_SECONDS: Final = 2.0
_NUMBERS: Final = count()
_SQUARE: Final = "m=4096&n=4096&k=4096&device=h200"


def main() -> None:
    """Fills a store, times the routes, counts answers beside open streams."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bests", type=int, default=10_000)
    options.add_argument("--measurements", type=int, default=99_990)
    options.add_argument("--seconds", type=float, default=8.0, help="of each turn")
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store.open(database_url(str(folder / "routes.db"))) as store:
            problems = fill(store, given.bests)
            multiply(store, given.measurements)
            with serving(folder, folder / "routes.db", "off") as ours:
                lines = timed(ours.port, store)
                lines += ["", f"`{best_query(problems[0])}`, over one connection, without and with 20 open pages:",
                          *throughput(ours.port, store, problems[0], given.seconds)]  # fmt: skip
                lines += ["", f"Memory of the service: {ours.memory_mb('VmRSS'):.0f} MB."]
    head = f"{given.bests:,} bests, {given.measurements:,} measurements, SQLite."
    print("\n".join([head, "", *lines]))
    publish("dashboard_routes", given.out, "\n".join([head, "", *lines]))


def multiply(store: Store, count: int) -> None:
    """Repeats the measurements of a store, as further series with other configs, until there are `count`."""
    columns = (
        "study_id, problem_id, device_id, provenance_id, stage, policy, outcome, samples_us, detail, verification, "
        "clocks, build_digest, note, product_joules, taken_at, worker_id, round_id, token_id"
    )
    with store.transaction(writes=True) as session:
        have = first = session.scalar(text("SELECT count(*) FROM measurement")) or 0
        series = 0
        while have < count:
            series += 1
            many = min(first, count - have)
            session.execute(
                text(f"INSERT INTO measurement (series, config_id, median_us, {columns}) "
                     f"SELECT series + :series, 1 + (config_id + :series * 37) % 2000, "
                     f"median_us * (1 + id % 97 / 300.0), {columns} FROM measurement WHERE id <= :many"),
                {"series": series, "many": many},
            )  # fmt: skip
            have += many


def timed(port: int, store: Store) -> list[str]:
    """A row of times and bytes for each route."""
    routes = {
        "bests:columns": f"/v1/bests:columns?device={quote(DEVICE)}",
        "measurements:columns": "/v1/measurements:columns",
        "space, two knobs": f"/v1/space?{_SQUARE}&x=tile_n&y=tile_m", "funnel": f"/v1/funnel?{_SQUARE}",
        "rules": "/v1/rules", "weights": f"/v1/weights?device={quote(DEVICE)}", "ladder": "/v1/ladder?n=4096&k=4096",
        "failures": "/v1/failures", "fleet": "/v1/fleet", "rounds": "/v1/rounds", "studies": "/v1/studies",
        "layouts/swizzle": "/v1/layouts/swizzle?format=svg", "service": "/v1/service",
    }  # fmt: skip
    lines = ["| route | first | kept | 304 | changed | bytes |", "| --- | --- | --- | --- | --- | --- |"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    first, kept, unchanged = {}, {}, {}
    for name, path in routes.items():
        first[name] = ask(connection, path)
        kept[name] = statistics.median(ask(connection, path)[0] for _ in range(_REPEATS))
        etag = first[name][2]
        if etag:
            unchanged[name] = statistics.median(ask(connection, path, etag)[0] for _ in range(_REPEATS))
    put_best(store, Gemm.parse("333x333x320"))
    for name, path in routes.items():
        shown = f"{unchanged[name]:.1f} ms" if name in unchanged else "–"
        lines.append(f"| {name} | {first[name][0]:.0f} ms | {kept[name]:.1f} ms | {shown} "
                     f"| {ask(connection, path)[0]:.0f} ms | {first[name][1]:,} |")  # fmt: skip
    connection.close()
    return lines


def ask(
    connection: http.client.HTTPConnection, path: str, etag: str | None = None, request_id: str = "routes"
) -> tuple[float, int, str | None]:
    """Milliseconds, bytes and ETag of one answer."""
    headers = {"Accept-Encoding": "zstd", "X-Request-Id": request_id} | ({"If-None-Match": etag} if etag else {})
    began = time.perf_counter()
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    took = (time.perf_counter() - began) * 1e3
    assert response.status == (304 if etag else 200), (path, response.status, body[:300])
    return took, len(body), response.headers.get("ETag")


def best_query(problem: Problem) -> str:
    """A question for a measured problem."""
    return f"/v1/best?{urlencode(problem.fields())}"


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
            ask(connection, path, request_id=f"columns-{len(asked)}")
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


def throughput(port: int, store: Store, problem: Problem, seconds: float) -> list[str]:
    """The share of answers that is left beside open pages."""
    share = share_beside_pages(port, store, problem, seconds)
    return ["", f"Share of the rate that is left, median of turns: {share:.3f}."]


def share_beside_pages(port: int, store: Store, problem: Problem, seconds: float) -> float:
    """Rate of answers beside open pages over that without, the median of alternating turns; all beside commits."""
    shares = []
    for turn in range(_TURNS):
        # Each order as often: a machine that gets slower must favour neither.
        rates = {}
        for beside in (turn % 2 == 0, turn % 2 == 1):
            with open_pages(port, DEVICE, problem.key) if beside else nullcontext(), commits(store):
                rates[beside] = answers(port, best_query(problem), seconds)
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


if __name__ == "__main__":
    main()
