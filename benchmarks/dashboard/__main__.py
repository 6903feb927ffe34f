"""Measures the pages in chromium over loopback, against their budgets.

    python -m benchmarks.dashboard --out benchmarks/results/dashboard.md

The store has 10,000 made-up bests, one problem with 100,000 made-up measurements, and one as a recorded search left
it. A time is the median of five visits with an empty cache. Of the column routes, `first` is the first answer after a
start, `changed` one after a new best with its measurement, `kept` a further one, compressed with zstandard; medians
of the times in the service's log. Answers of `/v1/best` are counted in turns without and with 20 open pages
(`benchmarks.open_pages`), while a new best is committed every 2 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.sync_api import Browser

from api.dashboard.assets import assets
from benchmarks.command import as_command
from benchmarks.dashboard.browser import chromium, paint_ms, ready_ms, tab
from benchmarks.dashboard.moves import brush_ms, commit_to_pixel_ms, heap_mib, hover_ms, redraw_ms
from benchmarks.dashboard.routes import column_times, share_beside_pages
from benchmarks.dashboard.stores import RECORDING, Filled, filled
from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE
from benchmarks.serving import Running, serving

BESTS: Final = 10_000
MEASUREMENTS: Final = 100_000
#: The charts of a problem that was searched.
CHARTS: Final = [
    "#finals canvas", "#clocks canvas", "#search canvas", "#changes canvas", "#tiles .cell", "#funnel .bars",
    "#failures .bars",
]  # fmt: skip
_HEAD: Final = "| what | measured | budget | |\n| --- | --- | --- | --- |"

Row = tuple[str, float, float, str]


def main() -> None:
    """Prints the table, a line as soon as it is measured."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=("pages", "moves", "server"), action="append", help="only these")
    add_out(options)
    given = options.parse_args()
    parts = given.part or ["server", "pages", "moves"]
    lines = [_HEAD]
    print(_HEAD, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = filled(folder / "store.db", BESTS, MEASUREMENTS)
        log = folder / "service.log"
        with made.store, serving(folder, folder / "store.db", auth="off") as server, chromium() as browser:
            measures = {"server": lambda: _server(server, log, made), "pages": lambda: _pages(browser, server, made),
                        "moves": lambda: _moves(browser, server, made)}  # fmt: skip
            for part in parts:
                for what, value, most, unit in measures[part]():
                    met = "met" if value <= most else "**missed**"
                    lines.append(f"| {what} | {value:,.1f} {unit} | {most:g} {unit} | {met} |")
                    print(lines[-1], flush=True)
    publish("dashboard", given.out, "\n".join(lines), read=[RECORDING])


def _pages(browser: Browser, server: Running, made: Filled) -> Iterator[Row]:
    base = f"http://127.0.0.1:{server.port}"
    crowded, usual = (
        f"{base}/problem?key={quote(problem.key)}&device={quote(DEVICE)}" for problem in (made.crowded, made.usual)
    )
    yield "first paint of Ask", paint_ms(browser, base), 200, "ms"
    longest = []
    for what, url, selectors, most in (
        ("Ask usable", base, ["#shape", "select[name=device] option"], 350.0),
        ("a problem's page with all charts", usual, CHARTS, 600.0),
        (f"{BESTS:,} problems usable", f"{base}/problems", [".forest-row a", "chart-scatter canvas"], 900.0),
        (f"{MEASUREMENTS:,} measurements drawn", crowded, ["#search canvas"], 1000.0),
    ):
        taken, task = ready_ms(browser, url, selectors)
        longest.append(task)
        print(f"{what}: longest task {task:.0f} ms", file=sys.stderr)
        yield what, taken, most, "ms"
    yield "longest task of the main thread", max(longest), 100, "ms"
    total = sum(min(map(len, file.bodies.values())) for file in assets().files.values())
    yield "all scripts and styles, compressed", total / 1024, 120, "KiB"


def _moves(browser: Browser, server: Running, made: Filled) -> Iterator[Row]:
    base = f"http://127.0.0.1:{server.port}"
    with tab(browser, f"{base}/problem?key={quote(made.crowded.key)}&device={quote(DEVICE)}") as page:
        page.wait_for_selector("#search canvas")
        page.wait_for_timeout(1500)
        yield f"{MEASUREMENTS:,} points drawn again", redraw_ms(page), 8, "ms"
        yield "hover over them, p95", hover_ms(page), 20, "ms"
        page.request_gc()
        yield (
            f"heap with {MEASUREMENTS:,} measurements",
            page.evaluate("performance.memory.usedJSHeapSize") / 2**20,
            60,
            "MiB",
        )
    with tab(browser, f"{base}/problems") as page:
        page.wait_for_selector(".forest-row a")
        page.wait_for_timeout(1000)
        yield "commit to pixel", commit_to_pixel_ms(page, made.store), 300, "ms"
        yield f"brush over {BESTS:,} problems, p95", brush_ms(page), 20, "ms"
        yield f"heap with {BESTS:,} problems", heap_mib(page), 60, "MiB"


def _server(server: Running, log: Path, made: Filled) -> Iterator[Row]:
    budgets = {"bests:columns": 20, "measurements:columns": 150}
    for (route, moment), taken in column_times(server.port, log, made.store, made.crowded).items():
        yield f"server: {route}, {moment}", taken, budgets[route], "ms"
    share = share_beside_pages(server.port, made.store, made.best, 5.0)
    yield "rate of /v1/best lost beside 20 open pages", 100 * (1 - share), 3, "%"


if __name__ == "__main__":
    as_command(main)
