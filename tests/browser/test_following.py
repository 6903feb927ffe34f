"""Pages whose answers change while one looks, and whose buttons ask again meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api.app import create_app
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.browser.conftest import Opener, answer_first, serving, settled, wait_until_asked
from tests.fleet import PROBLEMS, Fleet, failing
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key, today
from tuner.evidence.store import Store
from workers.measurement import Outcome

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page, Route


def _without_news(page: Page) -> None:
    """Only what a test clicks makes the page ask."""
    page.route("**/v1/events?*", lambda route: None)
    page.add_init_script("globalThis.setInterval = () => 0")


def _asked(page: Page, held: list[tuple[Route, APIResponse]]) -> tuple[Route, APIResponse]:
    """The only answer that is held, once the page has asked for it: it may first wait for another one."""
    wait_until_asked(page, held)
    (only,) = held
    return only


def _hold(page: Page, path: str) -> list[tuple[Route, APIResponse]]:
    """Holds the next answer. A server may close a kept connection just when the next request takes it: asked again."""
    held: list[tuple[Route, APIResponse]] = []
    answer_first(page, path, lambda route: held.append((route, route.fetch(max_retries=2))))
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
        route, answer = _asked(page, held)
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
        route, answer = _asked(page, held)
        page.click("button:text-is('Cancel')")
        page.click("button:has-text('Really cancel')")
        settled(page)
        route.fulfill(response=answer)
        settled(page)
        page.wait_for_selector(".badge:text-is('cancelled')")
        page.close()


@pytest.mark.parametrize("path", ["/campaign?id=1", "/campaigns"])
def test_a_campaign_whose_last_worker_joins_or_dies_says_so(opened: Opener, tmp_path: Path, path: str) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:1])
        page = opened(path, at=url)
        page.wait_for_selector("main :text('no worker is live')")
        settled(page)
        # It claims nothing: no round tells of it.
        fleet.hand(0)
        page.wait_for_selector("main :text('no worker is live')", state="detached")
        settled(page)
        fleet.fall_silent()
        fleet.sweeper.sweep()
        page.wait_for_selector("main :text('no worker is live')")
        page.close()


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [("/problems", "p:has-text('Nothing is measured yet')", ".forest[aria-rowcount='3']"),
     ("/ladder", "p:has-text('Nothing is measured yet')", "tbody tr:nth-child(2)"),
     (f"/device?name={DEVICE}", "p:has-text(' 0 bests')", "p:has-text(' 2 bests')"),
     ("/devices", f"tr:has-text('{DEVICE}') td:text-is('0')", f"tr:has-text('{DEVICE}') td:text-is('2')")],
)  # fmt: skip
def test_pages_follow_bests(opened: Opener, tmp_path: Path, path: str, before: str, after: str) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened(path, at=url)
        page.wait_for_selector(before)
        settled(page)
        keep_best(store)
        keep_best(store, Gemm(2 * PROBLEM.m, PROBLEM.n, PROBLEM.k))
        page.wait_for_selector(after)
        page.close()


def test_a_ladder_keeps_its_weight(opened: Opener, tmp_path: Path) -> None:
    """The weight that nobody chose is the one with most rungs; of another, more are measured while one looks."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened("/ladder", at=url)
        page.wait_for_selector("option:checked:has-text('(1 measured)')", state="attached")
        settled(page)
        for m in (64, 128, 256):
            keep_best(store, Gemm(m, 512, 512))
        page.wait_for_selector("option:has-text('(3 measured)')", state="attached")
        assert f"N={PROBLEM.n} K={PROBLEM.k}" in page.locator("option:checked").inner_text()
        page.close()


def test_weights_that_differ_in_their_epilogue_or_batch_are_told_apart(opened: Opener, tmp_path: Path) -> None:
    plain = "N=512 K=256"
    weights = {"": plain, "&epilogue=bias": f"{plain} bias", "&batch=4": f"{plain} b4"}
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        for problem in (Gemm(256, 512, 256), Gemm(256, 512, 256, epilogue="bias"), Gemm(256, 512, 256, batch=4)):
            keep_best(store, problem)
        page = opened("/ladder", at=url)
        for query, name in weights.items():
            page.goto(f"{url}/ladder?n=512&k=256{query}")
            page.wait_for_selector(f"option:checked:text-is('bf16 nt {name} (1 measured)')", state="attached")
            page.wait_for_selector(f"chart-lines h2:text-is('bf16 nt {name}')")
        page.select_option("select", f"bf16 nt {plain} (1 measured)")
        page.wait_for_selector(f"chart-lines h2:text-is('bf16 nt {plain}')")
        page.close()


def test_a_best_of_another_family_is_compared_with_the_defaults_of_its_own(opened: Opener, tmp_path: Path) -> None:
    other = family_named("mma_sync")
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        best = keep_best(store)
        page = opened(f"/problem?key={PROBLEM.key}&device={DEVICE}", at=url, allowed="status of 404")
        page.wait_for_selector(f"summary:text-is('{len(FAMILY.knobs)} knobs at their defaults')")
        settled(page)
        study = store.begin_study(replace(study_key(PROBLEM), family=other.name), fresh=True)
        stored = store.record(study.id, measured(other.config({}), 5.0), today(PROBLEM))
        store.set_bests([replace(best, winner=stored)])
        page.wait_for_selector(f"h2:has-text('{other.name}')")
        page.wait_for_selector(f"summary:text-is('{len(other.knobs)} knobs at their defaults')")
        page.close()


def test_one_campaign_is_created_by_a_double_click(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened(f"/?m={PROBLEM.m}&n={PROBLEM.n}&k={PROBLEM.k}", at=url)
        page.dblclick("button:has-text('Create a campaign')")
        page.wait_for_selector("h1:has-text('gemm:')")
        settled(page)
        page.goto(f"{url}/campaigns")
        page.fill("[name=name]", "night")
        page.fill("[name=ladders]", "m=64 n=64 k=64")
        page.dblclick("button:text-is('Create')")
        page.wait_for_selector("h1:text-is('night')")
        settled(page)
        page.goto(f"{url}/campaigns")
        page.wait_for_selector("tbody th:has-text('night')")
        assert page.locator("tbody th").count() == 2
        page.close()


def test_a_campaign_waits_for_the_devices_it_may_name(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened("/", at=url)
        # This page asks for the devices as well: its answer is not the one that is held.
        settled(page)
        _without_news(page)
        held = _hold(page, "**/v1/devices")
        page.goto(f"{url}/campaigns")
        page.fill("[name=name]", "night")
        page.fill("[name=ladders]", "m=64 n=64 k=64")
        route, answer = _asked(page, held)
        assert page.is_disabled("button:text-is('Create')")
        assert page.is_disabled("button:has-text('What would it cost')")
        # The key would send a form whose button is enabled.
        page.press("[name=name]", "Enter")
        route.fulfill(response=answer)
        page.click("button:text-is('Create')")
        page.wait_for_selector("h1:text-is('night')")
        settled(page)
        page.close()


def test_failures_follow_and_what_was_unfolded_stays(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        study = store.begin_study(study_key(PROBLEM)).id
        store.record(study, failing(FAMILY.config({}), PROBLEM, Outcome.LAUNCH), PROVENANCE)
        page = opened("/failures", at=url)
        page.click("section:has-text('1 × launch') summary")
        page.wait_for_selector("details[open]")
        settled(page)
        for stages in (2, 3):
            store.record(study, failing(FAMILY.config({"stages": stages}), PROBLEM), PROVENANCE)
        page.wait_for_selector("section:has(details):has-text('2 × timeout')")
        settled(page)
        page.wait_for_selector("section:has-text('1 × launch') details[open]")
        assert page.locator("details[open]").count() == 1
        page.close()


def test_a_problem_that_is_parked_without_a_measurement_has_its_suspect(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:1])
        page = opened("/failures", at=url)
        page.wait_for_selector("dt:has-text('suspects') + dd:text-is('0')")
        settled(page)
        for number in range(3):
            hand = fleet.hand(number)
            task = hand.claimed()
            hand.announce(task, hand.begin(task).propose()[:1])
            fleet.fall_silent()
            fleet.sweeper.sweep()
        page.wait_for_selector("[aria-label=Suspects] tbody tr")
        page.close()


def test_an_answer_follows_the_best_of_its_problem_alone(opened: Opener, tmp_path: Path) -> None:
    """The service counts a question that nothing measured answers each time: another's best asks none again."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened(f"/?m={PROBLEM.m}&n={PROBLEM.n}&k={PROBLEM.k}", at=url)
        page.wait_for_selector(".answer .badge:text-is('predicted')")
        settled(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/v1/best?" in request.url else None)
        keep_best(store, Gemm(2 * PROBLEM.m, PROBLEM.n, PROBLEM.k))
        page.wait_for_selector(f"option:has-text('{DEVICE} (1 measured)')", state="attached")
        settled(page)
        assert not asked
        page.focus("#shape")
        keep_best(store)
        page.wait_for_selector(".answer .badge:text-is('measured')")
        assert page.evaluate("document.activeElement.id") == "shape"
        page.close()


def test_what_is_measured_follows_before_the_first_question(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened("/", at=url)
        page.wait_for_selector("h2:has-text('Nothing is measured yet')")
        settled(page)
        keep_best(store)
        page.wait_for_selector("p:has-text('Measured so far') a")
        page.close()


def test_explain_follows_the_best_until_a_value_is_chosen(opened: Opener, tmp_path: Path) -> None:
    """A best with default knobs comes where a prediction had others."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened(f"/explain?problem={PROBLEM.key}&device={DEVICE}", at=url)
        page.wait_for_selector(".knob .note")
        settled(page)
        keep_best(store)
        page.wait_for_selector(".knob:not(:has(.note))")
        page.wait_for_selector(".knob .note", state="detached")
        page.click(".knob:has-text('stages') button[aria-pressed=false]")
        page.wait_for_selector(".knob:has-text('stages') .note")
        settled(page)
        keep_best(store, us=5.0)
        settled(page)
        assert page.locator(".knob .note").count() == 1
        page.close()
