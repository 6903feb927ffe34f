"""People: every chart has ink, a table and a way through by keyboard; axe finds nothing; nothing scrolls sideways."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from api.app import create_app
from tests.browser.conftest import Opener, serving, settled
from tests.browser.filled import FIRST
from tests.browser.test_pages import api
from tests.fleet import PROBLEMS
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROBLEM = f"/problem?key={FIRST}"
#: Each page, and an element that shows what it is for.
PAGES = [
    ("/?m=4096&n=4096&k=4096", ".answer .stale"), ("/problems", ".forest-row a"), (PROBLEM, "#changes figure"),
    ("/compare?a=1&b=2", "tbody tr"), ("/space", ".bars a:text('smem.capacity')"), ("/rules", "main a"),
    ("/explain", "#verdict h2"), ("/layouts", ".drawing svg"), ("/campaigns", "progress"),
    ("/campaign?id=1", "chart-cells figure"), ("/fleet", "chart-lanes figure"), ("/failures", ".bars"),
    ("/ladder?n=6144&k=4096", "chart-lines figure"), ("/devices", "tbody a"), ("/device?name=NVIDIA+H200", ".bars"),
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
WINDOWS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = ((1280, "light"), (390, "dark"))
#: What axe finds: rule, and the first element. What passes stays in the page: it is megabytes.
AXE = """async () => {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const found = await axe.run(document, {runOnly: tags, resultTypes: ['violations']});
    return found.violations.map(({id, nodes}) => `${id}: ${nodes[0].html.slice(0, 160)} (${nodes.length})`);
}"""
#: The charts of each page, and the schemes in which they are drawn, one after the other.
CHARTS: Final[dict[str, tuple[list[str], tuple[Literal["light", "dark"], ...]]]] = {
    "/problems": (["chart-scatter"], ("dark", "light")),
    PROBLEM: (["#finals chart-strips", "#search chart-scatter", "#changes chart-changes", "#clocks chart-lines"],
              ("light", "dark")),
    "/campaign?id=1": (["chart-cells"], ("light", "dark")),
    "/fleet": (["chart-lanes"], ("dark", "light")),
    "/ladder?n=6144&k=4096": (["chart-lines"], ("light", "dark")),
}  # fmt: skip


def walk(page: Page, chart: str) -> None:
    """A sentence, a tip for each point that the keyboard reaches, and a table."""
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


def inked(page: Page, charts: list[str], scheme: Literal["light", "dark"]) -> None:
    """Every chart has drawn something in a scheme."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    settled(page)
    for chart in charts:
        assert page.eval_on_selector(f"{chart} canvas", INKS) >= 3, (chart, scheme)


@pytest.mark.parametrize(("path", "shown"), PAGES, ids=[path for path, _ in PAGES])
def test_every_page_shows_what_it_is_for_with_ink_and_a_walk_and_axe_finds_nothing(
    opened: Opener, path: str, shown: str
) -> None:
    charts, schemes = CHARTS.get(path, ([], ("light",)))
    page = opened(path, scheme=schemes[0])
    page.wait_for_selector(shown)
    for chart in charts:
        page.wait_for_selector(f"{chart} canvas")
    for scheme in schemes if charts else ():
        inked(page, charts, scheme)
    assert re.search(r"\S", page.title())
    assert not re.search(r"undefined|NaN|\[object", page.inner_text("main"))
    source = (files("axe_playwright_python") / "axe.min.js").read_text()
    page.evaluate(f"(() => {{ {source} }})()")
    for width, scheme in WINDOWS:
        # A tall window: axe scrolls to what lies outside, which takes a minute on the longest page.
        page.set_viewport_size({"width": width, "height": 6000})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(AXE) == []
    if charts:
        page.set_viewport_size({"width": 1280, "height": 900})
        settled(page)
    for chart in charts:
        walk(page, chart)


LONG: Final = "W" * 60


@pytest.mark.parametrize("path", [f"/device?name={LONG}", f"/?m=1&n=1&k=1&device={LONG}", f"/failures?problem={LONG}"])
def test_long_words_do_not_widen_a_page(opened: Opener, path: str) -> None:
    page = opened(path, allowed="the server responded with a status of 4")
    page.set_viewport_size({"width": 360, "height": 800})
    settled(page)
    assert LONG in page.inner_text("main")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_name_of_a_campaign_leaves_its_status_in_view(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        request = CampaignRequest(LONG * 3, PROBLEMS[:1], (("NVIDIA H200", "cuda"),), CampaignBudget(20, 11))
        Campaigns(store).create(request)
        page = opened("/campaigns", at=url)
        page.wait_for_selector("tbody progress")
        box = page.locator("tbody td:has-text('running')").bounding_box()
        assert box
        assert box["x"] + box["width"] <= 1280
        page.close()


def test_a_name_that_is_too_long_for_its_row_ends_in_dots_and_keeps_its_mark(opened: Opener, url: str) -> None:
    body = api(url, "/v1/bests:columns?device=NVIDIA%20H200")
    body["columns"]["stale"] = [True] * body["rows"]
    page = opened("/")
    page.route("**/v1/bests:columns?*", lambda route: route.fulfill(json=body))
    page.set_viewport_size({"width": 340, "height": 800})
    page.goto(f"{url}/problems")
    cut = page.locator(".forest-row a:has-text('8192×4096×28672')")
    assert cut.inner_text().startswith("† ")
    # Digits that are cut without dots are another number.
    assert cut.evaluate("a => a.scrollWidth > a.clientWidth && getComputedStyle(a).textOverflow") == "ellipsis"


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


def test_points_do_not_cover_the_name_of_a_line(opened: Opener) -> None:
    page = opened("/problems")
    page.wait_for_selector("chart-scatter canvas")
    page.evaluate(
        """() => {
            const chart = document.createElement('chart-scatter');
            const spread = (steps, from, to) => Array.from({length: steps}, (_, at) => from + (to - from) * at / steps);
            const points = spread(50, 8, 11).flatMap(x => spread(50, 0.9, 1.2).map(y => [x, y]));
            const [x, y] = [0, 1].map(side => [0, ...points.map(point => point[side])]);
            chart.data = {
                title: 'Crowded', sentence: 'Points lie where the name is.', x, y, text: String, rows: () => ({}),
                groups: [{token: 'gain', shape: 'square', name: ''}], axes: {x: '', y: ''},
                lines: [{x: [0, 10], y: [1, 1], token: 'loss', name: 'MMMMMMMM'}],
            };
            chart.id = 'crowded';
            document.querySelector('main').append(chart);
        }"""
    )
    page.wait_for_selector("#crowded canvas")
    settled(page)
    red = """canvas => {
        const {data} = canvas.getContext('2d').getImageData(canvas.width - 95, 0, 50, canvas.height);
        let count = 0;
        for (let at = 0; at < data.length; at += 4) count += data[at] > 150 && data[at + 1] < 80 && data[at + 2] < 80;
        return count;
    }"""
    assert page.eval_on_selector("#crowded canvas", red) > 50


def test_the_last_moment_of_a_lane_is_not_cut_off(opened: Opener) -> None:
    page = opened("/fleet")
    page.wait_for_selector("chart-lanes canvas")
    right = page.evaluate(
        """() => new Promise(done => {
            const chart = document.createElement('chart-lanes'), real = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                const end = this.textAlign === 'right' ? x : x + this.measureText(text).width / 2;
                if (text === '00:30') done(this.canvas.getBoundingClientRect().width - end);
                real.call(this, text, x, y);
            };
            const spans = [{from: 0, to: 9, kind: 'done', busy: 1, text: 'nine seconds'}];
            const lanes = [{name: 'one', gone: false, spans}];
            chart.data = {title: 'Late', sentence: 'The half hour is over.', from: 0, to: 1801, lanes};
            chart.style.width = '300px';
            document.querySelector('main').append(chart);
        })"""
    )
    assert right >= 0


def test_the_first_number_of_a_forests_scale_is_not_cut_off(opened: Opener) -> None:
    page = opened("/problems?find=nothing")
    page.wait_for_selector(".ticks i:text-is('0.8×')")
    assert page.eval_on_selector_all(
        ".ticks i",
        """all => all.filter(tick => {
            let held = tick.parentElement;
            while (getComputedStyle(held).overflowX === 'visible' && held !== document.body) held = held.parentElement;
            return tick.getBoundingClientRect().left < held.getBoundingClientRect().left;
        }).map(tick => tick.textContent)""",
    ) == []


def test_a_forest_with_every_column_fits_a_tablet(opened: Opener, url: str) -> None:
    body = api(url, "/v1/bests:columns?device=NVIDIA%20H200")
    ratios = {against: body["columns"][against] for against in ("first", "best")}
    body["policies"] = {"sustained": ratios, "chain": ratios}
    page = opened("/")
    page.route("**/v1/bests:columns?*", lambda route: route.fulfill(json=body))
    page.goto(f"{url}/problems")
    page.wait_for_selector(".forest-head :text('Own clock')")
    for width in (768, 820, 900):
        page.set_viewport_size({"width": width, "height": 800})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "all => all.filter(name => name.scrollWidth > name.clientWidth).map(name => name.innerText)"
        assert page.eval_on_selector_all(".forest-head > :not(.c1)", cut) == []
