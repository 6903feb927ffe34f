"""Times the routes that pages read most, and what open pages cost everybody else.

    python -m benchmarks.dashboard_routes --out benchmarks/results/dashboard_routes.md

A store of made-up bests and measurements (`benchmarks.service_table`) is served in a process of its own. `first` is the
first answer after a start, `kept` the median of further ones, `changed` one after a new best with its measurement.
Bytes are those of zstandard. Answers of `/v1/best` are counted in turns without and with 20 open event streams.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from sqlalchemy import text

from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, fill, put_best
from benchmarks.serving import serving
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.evidence.store import Store
from tuner.settings import database_url

_STREAMS: Final = 20
_TURNS: Final = 6
_REPEATS: Final = 7
_ZSTD: Final = {"Accept-Encoding": "zstd"}
_SQUARE: Final = "m=4096&n=4096&k=4096&device=h200"


def main() -> None:
    """Fills a store, times the routes, counts answers beside open streams."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bests", type=int, default=10_000)
    options.add_argument("--measurements", type=int, default=99_990)
    options.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Store.open(database_url(str(folder / "routes.db"))) as store:
            problems = fill(store, given.bests)
            multiply(store, given.measurements)
            with serving(folder, folder / "routes.db", "off") as ours:
                lines = timed(ours.port, store)
                lines += ["", f"`{best_query(problems[0])}`, over one connection, without and with open event streams:",
                          *throughput(ours.port, problems[0], given.seconds)]  # fmt: skip
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


def ask(connection: http.client.HTTPConnection, path: str, etag: str | None = None) -> tuple[float, int, str | None]:
    """Milliseconds, bytes and ETag of one answer."""
    began = time.perf_counter()
    connection.request("GET", path, headers=_ZSTD | ({"If-None-Match": etag} if etag else {}))
    response = connection.getresponse()
    body = response.read()
    took = (time.perf_counter() - began) * 1e3
    assert response.status == (304 if etag else 200), (path, response.status, body[:300])
    return took, len(body), response.headers.get("ETag")


def best_query(problem: Problem) -> str:
    """A question for a measured problem."""
    return f"/v1/best?{urlencode(problem.fields())}"


def column_times(port: int, store: Store, problem: Problem) -> dict[tuple[str, str], float]:
    """Milliseconds of the column routes, by route and moment: first, changed, kept.

    Args:
        problem: whose measurements are read.
    """
    routes = {"bests:columns": f"/v1/bests:columns?device={quote(DEVICE)}",
              "measurements:columns": f"/v1/measurements:columns?problem={quote(problem.key)}"}  # fmt: skip
    found = {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for name, path in routes.items():
        found[name, "first"] = ask(connection, path)[0]
    changed: dict[str, list[float]] = {name: [] for name in routes}
    for turn in range(_REPEATS):
        put_best(store, Gemm.of(50_001 + turn, 64, 64))
        for name, path in routes.items():
            changed[name].append(ask(connection, path)[0])
    for name, path in routes.items():
        found[name, "changed"] = statistics.median(changed[name])
        found[name, "kept"] = statistics.median(ask(connection, path)[0] for _ in range(_REPEATS))
    connection.close()
    return found


def throughput(port: int, problem: Problem, seconds: float) -> list[str]:
    """The share of answers that is left beside open streams."""
    return ["", f"Share of the rate that is left, median of turns: {share_beside_streams(port, problem, seconds):.3f}."]


def share_beside_streams(port: int, problem: Problem, seconds: float) -> float:
    """Rate of answers beside open event streams over that without, the median of alternating turns."""
    shares = []
    for turn in range(_TURNS):
        # Each order as often: a machine that gets slower must favour neither.
        rates = {}
        for beside in (turn % 2 == 0, turn % 2 == 1):
            with streams(port) if beside else nullcontext():
                rates[beside] = answers(port, best_query(problem), seconds)
        shares.append(rates[True] / rates[False])
    return statistics.median(shares)


def answers(port: int, path: str, seconds: float) -> float:
    """Answers a second over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        count += 1
    connection.close()
    return count / (time.perf_counter() - began)


def drain(response: http.client.HTTPResponse) -> None:
    """Reads a stream until it is closed."""
    with suppress(http.client.HTTPException, OSError):
        response.read()


@contextmanager
def streams(port: int) -> Iterator[None]:
    """Open event streams, each of a page that is looked at."""
    opened = []
    for number in range(_STREAMS):
        # From several addresses, as of several people.
        source = f"127.0.0.{2 + number}", 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600, source_address=source)
        connection.request("GET", "/v1/events?seconds=600")
        response = connection.getresponse()
        assert response.status == 200
        reader = threading.Thread(target=drain, args=(response,), daemon=True)
        reader.start()
        opened.append((connection, reader))
    try:
        yield
    finally:
        for connection, _ in opened:
            if connection.sock:
                connection.sock.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
