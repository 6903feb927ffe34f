"""What happens in an open page, timed inside it."""

from __future__ import annotations

import statistics
import time
from typing import Final

from playwright.sync_api import Page

from benchmarks.service_table import put_best
from space.kinds.gemm import Gemm
from tuner.evidence.store import Store

_COMMITS: Final = 9


def redraw_ms(page: Page) -> float:
    """Median time of a whole drawing of the search's points."""
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


def hover_ms(page: Page) -> float:
    """95th percentile of a move of the pointer: the nearest point is found, and its tip laid out."""
    return float(page.evaluate("""async () => {
        const plot = document.querySelector('#search .plot');
        const box = plot.getBoundingClientRect();
        const took = [];
        for (let turn = 0; turn < 100; turn++) {
            const clientX = box.left + 60 + (box.width - 80) * turn / 100, clientY = box.top + 40 + (turn * 37) % 200;
            const began = performance.now();
            plot.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY, bubbles: true}));
            plot.querySelector('.tip').getBoundingClientRect();
            took.push(performance.now() - began);
            await new Promise(requestAnimationFrame);
        }
        return took.sort((a, b) => a - b)[94];
    }"""))  # fmt: skip


def brush_ms(page: Page) -> float:
    """95th percentile of the work of a frame after a rectangle was drawn: every chart shows the selection."""
    return float(page.evaluate("""async () => {
        const chart = document.querySelector('chart-scatter');
        const took = [];
        // Callbacks run in order: this one runs behind those of the page, and measures the frame so far.
        const frame = () => new Promise((done) => requestAnimationFrame((start) => {
            document.body.getBoundingClientRect();
            done(performance.now() - start);
        }));
        for (let turn = 0; turn < 40; turn++) {
            const began = performance.now();
            chart.data.brushed([1, 30 * (turn + 1), 1, 900]);
            const handled = performance.now() - began;
            took.push(Math.max(handled, await frame(), await frame(), await frame()));
        }
        return took.sort((a, b) => a - b)[37];
    }"""))  # fmt: skip


def commit_to_pixel_ms(page: Page, store: Store) -> float:
    """Median time from a commit until the page shows the new best."""
    taken = []
    before = int(page.get_attribute(".forest", "aria-rowcount") or 0)
    for turn in range(1, _COMMITS + 1):
        row = f".forest[aria-rowcount='{before + turn}']"
        # The promise must not be returned: evaluating would wait for it.
        page.evaluate("row => { globalThis.shown = when([row]).then(() => Date.now()); }", row)
        put_best(store, Gemm.of(100_001 + turn, 64, 64))
        began = time.time() * 1000
        taken.append(float(page.evaluate("shown")) - began)
        page.wait_for_timeout(400 + 37 * turn)
    return statistics.median(taken)


def heap_mib(page: Page) -> float:
    """Memory of the page's scripts after a collection."""
    page.request_gc()
    return float(page.evaluate("performance.memory.usedJSHeapSize")) / 2**20
