"""Measures the pages in chromium over loopback, against their budgets.

    python -m benchmarks.dashboard --out benchmarks/results/dashboard.md

The store has 10,000 bests and one problem with 100,000 measurements, all made up. Each time is the median of five
visits with an empty cache. `server` times are of answers that are asked for the second time, compressed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2
from playwright.sync_api import Browser, Page

from api.dashboard.assets import assets
from benchmarks.dashboard.browser import chromium, paint_ms, ready_ms, tab
from benchmarks.dashboard.stores import filled
from benchmarks.published import add_out, publish
from benchmarks.service_table import DEVICE, put_best
from benchmarks.serving import Running, serving
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store

BESTS: Final = 10_000
MEASUREMENTS: Final = 100_000
#: A problem that is as a study leaves it, for the page with all charts.
CHARTS: Final = ["#finals canvas", "#clocks canvas", "#tiles .cell", "#funnel .bars", "#failures .bars"]
_HEAD: Final = "| what | measured | budget |\n| --- | --- | --- |"
_SECONDS: Final = 4.0

Row = tuple[str, float, float, str]


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_out(options)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, problems = filled(Path(folder) / "store.db", BESTS, MEASUREMENTS)
        with store, serving(Path(folder), Path(folder) / "store.db", auth="off") as server, chromium() as browser:
            rows = [*_pages(browser, server, problems), *_moves(browser, server, problems, store), *_server(server)]
    lines = [f"| {what} | {value:,.1f} {unit} | {most:g} {unit} |" for what, value, most, unit in rows]
    table = "\n".join([_HEAD, *lines])
    print(table)
    publish("dashboard", given.out, table)


def _pages(browser: Browser, server: Running, problems: list[Gemm]) -> Iterator[Row]:
    base = f"http://127.0.0.1:{server.port}"
    many, usual = (f"{base}/problem?key={quote(problem.key)}&device={quote(DEVICE)}" for problem in problems[:2])
    yield "first paint of Ask", paint_ms(browser, base), 200, "ms"
    yield "Ask usable", ready_ms(browser, base, ["#shape", "select[name=device] option"])[0], 350, "ms"
    longest = []
    for what, url, selectors, most in (
        ("a problem's page with all charts", usual, CHARTS, 600.0),
        (f"{BESTS:,} problems usable", f"{base}/problems", [".forest-row a", "chart-scatter canvas"], 900.0),
        (f"{MEASUREMENTS:,} measurements drawn", many, ["#search canvas"], 1000.0),
    ):
        taken, task = ready_ms(browser, url, selectors)
        longest.append(task)
        yield what, taken, most, "ms"
    yield "longest task of the main thread", max(longest), 100, "ms"
    total = sum(min(map(len, file.bodies.values())) for file in assets().files.values())
    yield "all scripts and styles, compressed", total / 1024, 120, "KiB"


def _moves(browser: Browser, server: Running, problems: list[Gemm], store: Store) -> Iterator[Row]:
    base = f"http://127.0.0.1:{server.port}"
    with tab(browser, f"{base}/problem?key={quote(problems[0].key)}&device={quote(DEVICE)}") as page:
        page.wait_for_selector("#search canvas")
        page.wait_for_timeout(1500)
        yield f"{MEASUREMENTS:,} points drawn again", _redraws(page), 8, "ms"
        yield "hover over them, p95", _hover(page), 20, "ms"
    with tab(browser, f"{base}/problems") as page:
        page.wait_for_selector(".forest-row a")
        page.wait_for_timeout(1000)
        yield "commit to pixel", _commit_to_pixel(page, store), 300, "ms"
        yield "brush over 10,000 problems, p95", _brushes(page), 20, "ms"
        page.request_gc()
        yield "heap with 10,000 problems", page.evaluate("performance.memory.usedJSHeapSize") / 2**20, 60, "MiB"


def _redraws(page: Page) -> float:
    return float(page.evaluate("""async () => {
        const chart = document.querySelector('#search chart-scatter');
        const took = [];
        for (let turn = 0; turn < 15; turn++) {
            chart.later();
            await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
            took.push(chart.took);
        }
        return took.sort((a, b) => a - b)[7];
    }"""))  # fmt: skip


def _hover(page: Page) -> float:
    return float(page.evaluate("""async () => {
        const plot = document.querySelector('#search .plot');
        const box = plot.getBoundingClientRect();
        const took = [];
        for (let turn = 0; turn < 60; turn++) {
            const [clientX, clientY] = [box.left + 60 + (box.width - 80) * turn / 60, box.top + 40 + (turn * 37) % 200];
            const began = performance.now();
            plot.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY, bubbles: true}));
            plot.querySelector('.tip').getBoundingClientRect();
            took.push(performance.now() - began);
            await new Promise(requestAnimationFrame);
        }
        return took.sort((a, b) => a - b)[56];
    }"""))  # fmt: skip


def _brushes(page: Page) -> float:
    """Time from the end of a rectangle to the new selection, without the wait for the frame."""
    return float(page.evaluate("""async () => {
        const chart = document.querySelector('chart-scatter');
        const took = [];
        const frame = () => new Promise(requestAnimationFrame);
        for (let turn = 0; turn < 20; turn++) {
            chart.data.brushed([1, 30 * (turn + 1), 1, 900]);
            await frame();
            const began = performance.now();
            await frame(); await frame();
            took.push(Math.max(0, performance.now() - began - 2 * 16.7));
        }
        return took.sort((a, b) => a - b)[18];
    }"""))  # fmt: skip


def _commit_to_pixel(page: Page, store: Store) -> float:
    """Median time from a commit until the page shows the new best."""
    taken = []
    for turn in range(5):
        count = BESTS + turn + 2
        page.evaluate(f"globalThis.shown = when([\".forest[aria-rowcount='{count}']\"]).then(() => Date.now())")
        put_best(store, Gemm.of(100_001 + turn, 64, 64))
        began = time.time() * 1000
        taken.append(float(page.evaluate("shown")) - began)
    return statistics.median(taken)


def _server(server: Running) -> Iterator[Row]:
    base = f"http://127.0.0.1:{server.port}"
    headers = {"Accept-Encoding": "gzip"}
    with httpx2.Client(base_url=base, headers=headers, timeout=60) as client:
        for what, path, most in (
            (f"bests:columns of {BESTS:,}", f"/v1/bests:columns?device={quote(DEVICE)}", 20.0),
            (f"measurements:columns of {MEASUREMENTS:,}", "/v1/measurements:columns?limit=100000", 150.0),
        ):
            taken = []
            for _ in range(6):
                began = time.perf_counter()
                client.get(path).raise_for_status()
                taken.append((time.perf_counter() - began) * 1000)
            yield f"server: {what}", statistics.median(taken[1:]), most, "ms"
        alone = _rate(client)
        with _watching(base, 20):
            beside = _rate(client)
    yield "/v1/best with 20 dashboards open, loss", max(0.0, 100 * (1 - beside / alone)), 3, "%"


def _rate(client: httpx2.Client) -> float:
    """Answers of `/v1/best` a second, one after another."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        client.get("/v1/best?m=4096&n=4096&k=4096&device=NVIDIA%20H200").raise_for_status()
        count += 1
    return count / _SECONDS


@contextmanager
def _watching(base: str, dashboards: int) -> Iterator[None]:
    """Event streams of as many dashboards, read all the time; from several addresses, as of several people."""
    stop = threading.Event()

    def follow(number: int) -> None:
        transport = httpx2.HTTPTransport(local_address=f"127.0.0.{2 + number}")
        with httpx2.Client(transport=transport, timeout=2) as client:
            while not stop.is_set():
                try:
                    with client.stream("GET", f"{base}/v1/events") as stream:
                        for _ in stream.iter_bytes():
                            if stop.is_set():
                                return
                except httpx2.TimeoutException:
                    continue

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(dashboards)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    yield
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
