"""People: every chart has ink, a table and a way through by keyboard; axe finds nothing; nothing scrolls sideways."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Opener, settled
from tests.browser.filled import FIRST

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROBLEM = f"/problem?key={FIRST}"
PAGES = [
    "/?m=4096&n=4096&k=4096", "/problems", PROBLEM, "/compare?a=1&b=2", "/space", "/rules", "/explain", "/layouts",
    "/campaigns", "/campaign?id=1", "/fleet", "/failures", "/ladder?n=6144&k=4096", "/devices",
    "/device?name=NVIDIA+H200",
]  # fmt: skip
#: Colours in the pixels of a canvas that are neither transparent nor the most frequent one.
INKS = """canvas => {
    const {width, height} = canvas;
    // A copy: chromium warns of a canvas that is read twice.
    const copy = new OffscreenCanvas(width, height).getContext('2d', {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, width, height).data;
    const seen = new Map();
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 40) continue;
        const colour = (data[at] >> 4) * 256 + (data[at + 1] >> 4) * 16 + (data[at + 2] >> 4);
        seen.set(colour, (seen.get(colour) ?? 0) + 1);
    }
    return [...seen.values()].filter((count) => count > 8).length;
}"""
CHARTS = [("/problems", "chart-scatter"), (PROBLEM, "#finals chart-strips"), (PROBLEM, "#search chart-scatter"),
          (PROBLEM, "#changes chart-changes"), (PROBLEM, "#clocks chart-lines"), ("/campaign?id=1", "chart-cells"),
          ("/fleet", "chart-lanes"), ("/ladder?n=6144&k=4096", "chart-lines")]  # fmt: skip


@pytest.mark.parametrize(("path", "chart"), CHARTS, ids=[f"{path[:9]}-{chart}" for path, chart in CHARTS])
def test_every_chart_has_ink_a_table_and_a_walk(opened: Opener, path: str, chart: str) -> None:
    # Some are drawn dark first, and then light.
    schemes = ("light", "dark") if CHARTS.index((path, chart)) % 2 else ("dark", "light")
    page = opened(path, color_scheme=schemes[0])
    page.wait_for_selector(f"{chart} canvas")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        settled(page)
        assert page.eval_on_selector(f"{chart} canvas", INKS) >= 3
    assert page.inner_text(f"{chart} .says").strip().endswith(".")
    page.focus(f"{chart} .plot")
    page.keyboard.press("Home")
    first = page.inner_text(f"{chart} .tip")
    page.keyboard.press("End")
    assert first
    assert page.inner_text(f"{chart} .tip") != first
    assert page.inner_text(f"{chart} [aria-live]")
    page.keyboard.press("Escape")
    assert page.is_hidden(f"{chart} .tip")
    page.click(f"{chart} button:text-is('As a table')")
    assert len(page.wait_for_selector(f"{chart} table tbody").query_selector_all("tr")) > 1  # type: ignore[union-attr]


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_and_nothing_scrolls_sideways(opened: Opener, path: str) -> None:
    page = opened(path, color_scheme="light")
    for width, scheme in ((1280, "light"), (390, "dark")):
        # A tall window: axe scrolls to what lies outside, which takes a minute on the longest page.
        page.set_viewport_size({"width": width, "height": 6000})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []


def violations(page: Page) -> list[str]:
    """What axe finds: rule, and the first element."""
    source = (files("axe_playwright_python") / "axe.min.js").read_text()
    page.evaluate(f"globalThis.axe || (() => {{ {source} }})()")
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [f"{entry['id']}: {entry['nodes'][0]['html'][:160]} ({len(entry['nodes'])})" for entry in found]


def test_the_keyboard_reaches_the_page_and_the_scheme(opened: Opener) -> None:
    page = opened("/problems")
    page.wait_for_selector(".forest-row a")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.focus("header button:has-text('Scheme')")
    before = page.evaluate("getComputedStyle(document.body).color")
    for _ in range(2):
        page.keyboard.press("Enter")
    assert page.inner_text("header button:has-text('Scheme')").endswith("dark")
    assert page.evaluate("getComputedStyle(document.body).color") != before
