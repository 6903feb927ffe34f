"""Pages whose answers change while one looks, and whose buttons ask again meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api.app import create_app
from tests.browser.conftest import Opener, serving, settled
from tests.fleet import PROBLEMS, Fleet
from tuner.evidence.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page, Route


def _without_news(page: Page) -> None:
    """Only what a test clicks makes the page ask."""
    page.route("**/v1/events?*", lambda route: None)
    page.add_init_script("globalThis.setInterval = () => 0")


def _hold(page: Page, path: str) -> list[tuple[Route, APIResponse]]:
    """Holds the next answer."""
    held: list[tuple[Route, APIResponse]] = []
    page.route(path, lambda route: held.append((route, route.fetch())), times=1)
    return held


@pytest.mark.parametrize(("button", "status"), [("30 min", 200), ("Drain", 200), ("30 min", 500)])
def test_a_newer_answer_of_the_fleet_stays(opened: Opener, tmp_path: Path, button: str, status: int) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        fleet = Fleet(store)
        fleet.hand(0)
        page = opened("/", at=url, allowed="500")
        _without_news(page)
        page.goto(f"{url}/fleet")
        page.wait_for_selector("[aria-label=Workers] tbody tr")
        settled(page)
        held = _hold(page, "**/v1/fleet")
        page.click(f"button:text-is('{button}')")
        settled(page)
        ((route, answer),) = held
        fleet.hand(1)
        page.click("button:text-is('3 h')")
        settled(page)
        route.fulfill(response=answer, status=status)
        settled(page)
        page.wait_for_selector("[aria-label=Workers] tbody tr:nth-child(2)")
        page.close()


def test_a_newer_answer_of_a_campaign_stays(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        Fleet(store).campaign(PROBLEMS[:1])
        page = opened("/", at=url)
        _without_news(page)
        page.goto(f"{url}/campaign?id=1")
        page.wait_for_selector("chart-cells figure")
        settled(page)
        held = _hold(page, "**/v1/campaigns/1")
        page.click("button:text-is('Pause')")
        settled(page)
        ((route, answer),) = held
        page.click("button:text-is('Cancel')")
        page.click("button:has-text('Really cancel')")
        settled(page)
        route.fulfill(response=answer)
        settled(page)
        page.wait_for_selector(".badge:text-is('cancelled')")
        page.close()
