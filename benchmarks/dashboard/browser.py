"""A chromium for measurements and pictures, and clocks inside its pages."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

#: The address bar's list of suggestions is two pages of chromium's own, and each window loads both beside the page that
#: is measured. The other features are those that Playwright disables: chromium takes only the last such list.
_DISABLED: Final = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay", "MediaRouter",
    "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)  # fmt: skip
#: Nothing may call out: neither updates nor chromium's own hosts can be reached from everywhere.
FLAGS: Final = (
    "--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-gpu", "--no-first-run", "--enable-precise-memory-info", f"--disable-features={','.join(_DISABLED)}",
)  # fmt: skip
#: Loads of a page of which the median counts.
_TIMES: Final = 5
#: Runs before a page's own scripts: when a selector first matches, in ms since navigation; and all long tasks.
_CLOCKS: Final = """
globalThis.longTasks = [];
new PerformanceObserver((list) => { for (const entry of list.getEntries()) longTasks.push(entry.duration); })
    .observe({type: 'longtask', buffered: true});
globalThis.when = (selectors) => new Promise((done) => {
    const look = () => selectors.every((selector) => document.querySelector(selector))
        ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 2);
    look();
});
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's chromium, without a window.

    Raises:
        SystemExit: there is none.
    """
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise SystemExit("there is no chromium on the PATH: install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, url: str, **options: Any) -> Iterator[Page]:  # noqa: ANN401
    """A page in a context of its own: nothing is cached."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
    page = context.new_page()
    page.add_init_script(_CLOCKS)
    page.goto(url, wait_until="commit")
    yield page
    context.close()


def ready_ms(browser: Browser, url: str, selectors: list[str]) -> tuple[float, float]:
    """Median time until all selectors match, and the longest task of the main thread, in ms."""
    taken, longest = [], 0.0
    for _ in range(_TIMES):
        with tab(browser, url) as page:
            taken.append(float(page.evaluate("selectors => when(selectors)", selectors)))
            longest = max([longest, *page.evaluate("longTasks")])
    return statistics.median(taken), longest


def paint_ms(browser: Browser, url: str) -> float:
    """Median time of the first contentful paint in ms."""
    taken = []
    for _ in range(_TIMES):
        with tab(browser, url) as page:
            page.wait_for_selector("main h1")
            page.wait_for_timeout(100)
            taken.append(float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")))
    return statistics.median(taken)
