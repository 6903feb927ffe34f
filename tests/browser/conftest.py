"""A chromium, and a service on a store filled from recordings. Without a browser these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest
from fastapi import FastAPI

from api.app import create_app
from tests.browser.filled import fill
from tests.integration.api import asking
from tuner.evidence.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = None if CHROMIUM else "no chromium on the PATH (Debian: apt-get install chromium)"
    if find_spec("playwright") is None:
        missing = "playwright is not installed (it is in the extra `test`)"
    if missing:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=missing))


def serving(app: FastAPI) -> AbstractContextManager[str]:
    """A real server; its URL. It does not wait for the event streams of pages that are still open."""
    return asking.serving(app, log_level="critical", graceful_seconds=1)


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserContext]:
    """One profile for all tests: a module of the pages is fetched and compiled once."""
    from playwright.sync_api import sync_playwright

    from benchmarks.dashboard.browser import FLAGS

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        context = started.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        yield context
        started.close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('filled')}/store.db") as store:
        fill(store)
        yield store


@pytest.fixture(scope="session")
def url(filled: Store) -> Iterator[str]:
    """The service on the filled store; its address."""
    with serving(create_app(filled)) as address:
        yield address


Opener = Callable[..., "Page"]


@pytest.fixture
def opened(browser: BrowserContext, url: str) -> Iterator[Opener]:
    """Opens a path in a tab of its own and waits for its heading.

    At the end of the test the consoles of all tabs must have been silent, but for messages that `allowed` is part of.
    """
    said: list[str] = []
    expected: list[str] = []

    def open_page(path: str, allowed: str = "", at: str = "", scheme: Literal["light", "dark"] = "light") -> Page:
        page = browser.new_page()
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        expected.append(allowed)
        page.goto((at or url) + path)
        page.wait_for_selector("main h1")
        return page

    yield open_page
    for page in browser.pages:
        # The scheme that a reader chose.
        page.evaluate("localStorage.clear()")
        page.close()
    wrong = [line for line in said if not any(part and part in line for part in expected)]
    assert wrong == []


def answer_first(page: Page, path: str, answer: Callable[[Route], object]) -> None:
    """Answers a path's first request in another way; later ones reach the service.

    `times=1` would end the interception with its last route, and a request that Chromium holds just then, whatever its
    path, may never be answered.
    """
    once = [answer]
    page.route(path, lambda route: once.pop()(route) if once else route.continue_())


def wait_until_asked(page: Page, held: Sequence[object]) -> None:
    """Waits until a page has asked for what is held back: it may draw before it asks, or wait for another answer."""
    for _ in range(1_200):
        if held:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page never asked")


def settled(page: Page) -> None:
    """Waits until all requests but the event stream have been answered, and what they changed is drawn."""
    # `wait_for_function` evaluates strings in the page, which the page's policy forbids.
    page.evaluate(
        """() => new Promise((done) => {
            let quiet = 0, count = -1;
            const look = () => {
                const requests = performance.getEntriesByType('resource').length;
                const now = requests + document.querySelectorAll('main *').length;
                quiet = now === count ? quiet + 1 : 0;
                count = now;
                quiet > 12 ? done(true) : requestAnimationFrame(look);
            };
            look();
        })"""
    )
