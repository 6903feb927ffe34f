"""What moves: a stream that is cut and resumed, a service that goes away, tokens, an empty store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api import streams
from api.access import AccessPolicy
from api.app import create_app
from space.kinds.gemm import Gemm
from tests.browser.conftest import Opener, answer_first, serving, settled, wait_until_asked
from tests.fleet import PROBLEMS, Fleet, Listening
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.evidence import tokens
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.views import feed, versions
from workers.measurement import Policy

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Route


def test_a_new_best_appears_and_typed_text_stays(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        with serving(create_app(store)) as url:
            page = opened("/problems", at=url)
            page.wait_for_selector(".forest-row a")
            page.focus("input[type=search]")
            page.keyboard.type("2")
            keep_best(store, Gemm(512, 256, 256))
            page.wait_for_selector(".forest[aria-rowcount='3']")
            assert page.input_value("input[type=search]") == "2"
            assert page.evaluate("document.activeElement.type") == "search"
            # What only the changed rows were read for is what reading all shows.
            keep_best(store, Gemm(512, 256, 256), us=5.0)
            page.wait_for_selector(".forest-row:has-text('512×256×256'):has(:text-is('5'))")
            settled(page)
            merged = page.locator("#headline, .filters, .card").all_inner_texts()
            page.reload()
            page.wait_for_selector(".forest[aria-rowcount='3']")
            settled(page)
            assert page.locator("#headline, .filters, .card").all_inner_texts() == merged
            page.close()


def test_a_service_that_goes_away_is_named_and_the_page_resumes(opened: Opener, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/store.db"
    with Store.open(database) as store:
        Fleet(store).campaign(PROBLEMS[:3])
    service = Listening(database)
    service.start()
    try:
        page = opened("/campaign?id=1", at=service.url, allowed="ERR_")
        page.wait_for_selector("chart-cells figure")
        service.stop()
        page.wait_for_selector(".banner:has-text('has not answered since')")
        assert page.is_visible("chart-cells")
    finally:
        service.start()
    page.wait_for_selector(".banner", state="detached")
    page.wait_for_selector("chart-cells figure")
    fleet = Fleet(service.store)
    hand = fleet.hand()
    hand.work(hand.claimed())
    page.wait_for_selector("dd:text-is('1')")
    page.close()
    service.stop()


def test_a_proxy_that_answers_for_a_service_that_restarts_is_not_taken_for_it(opened: Opener, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/store.db"
    with Store.open(database) as store:
        Fleet(store).campaign(PROBLEMS[:1])
    service = Listening(database)
    service.start()
    page = opened("/campaign?id=1", at=service.url, allowed="Failed to load")
    page.wait_for_selector("chart-cells figure")
    service.stop()
    page.wait_for_selector(".banner:has-text('has not answered since')")
    asked: set[str] = set()
    refused = ["/v1/", "/readyz"]

    def answer(route: Route) -> None:
        asked.add(route.request.url)
        if any(path in route.request.url for path in refused):
            route.fulfill(status=503)
        else:
            route.continue_()

    page.route("**/v1/**", answer)
    page.route("**/readyz", answer)
    while len(asked) < 2:
        page.wait_for_timeout(50)
    settled(page)
    assert page.is_visible("chart-cells figure")
    service.start()
    # A page that is opened meanwhile opens once there is an answer.
    refused.remove("/readyz")
    page.click("nav a:text-is('Fleet')")
    page.wait_for_selector("h1:text-is('This did not work')")
    refused.remove("/v1/")
    page.wait_for_selector("h1:text-is('Is every GPU busy, and on what?')")
    page.wait_for_selector(".banner", state="detached")
    page.close()
    service.stop()


def test_an_answer_that_is_cut_off_is_asked_for_again(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened("/campaigns", at=url, allowed="ERR_")
        # As a connection that is lost in the middle of an answer ends.
        page.evaluate(
            """() => {
                const whole = Response.prototype.json;
                Response.prototype.json = function () {
                    Response.prototype.json = whole;
                    return Promise.reject(new TypeError("network error"));
                };
            }"""
        )
        page.click("nav a:text-is('Fleet')")
        page.wait_for_selector("h1:text-is('Is every GPU busy, and on what?')")
        page.wait_for_selector("main h2")
        page.close()


def test_the_device_of_a_new_campaign_stays_when_the_service_restarts(opened: Opener, tmp_path: Path) -> None:
    service = Listening(f"sqlite:///{tmp_path}/store.db")
    service.start()
    page = opened("/campaigns", at=service.url, allowed="ERR_")
    page.fill("[name=name]", "night")
    page.select_option("[name=device]", "NVIDIA L4")
    service.stop()
    page.wait_for_selector(".banner")
    service.start()
    with page.expect_response("**/v1/devices"):
        page.wait_for_selector(".banner", state="detached")
    settled(page)
    assert [page.input_value(f"[name={name}]") for name in ("name", "device")] == ["night", "NVIDIA L4"]
    page.close()
    service.stop()


def test_a_page_of_an_older_version_is_read_again(opened: Opener, url: str) -> None:
    """The modules that it has not read yet are gone with the version that it came from."""
    page = opened("/fleet", allowed="Failed to ")
    answer_first(page, "**/static/*/pages/rules.js", lambda route: route.fulfill(status=404))
    page.evaluate("window.same = true")
    page.click("nav a:text-is('Space')")
    page.click("a:text-is('All rules')")
    page.wait_for_selector("h1:text-is('Which rules are there?')")
    assert page.url == f"{url}/rules"
    assert not page.evaluate("window.same")


def test_a_token_is_asked_for_and_a_scope_that_lacks_is_named(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        _, reader = tokens.make(store, "reader", ["read"])
        with serving(create_app(store, AccessPolicy(tokens=True))) as url:
            page = opened("/problems", at=url, allowed="401")
            unknown = "The token is unknown"
            for secret, shown in (("wrong", unknown), (f"“{reader}”", unknown), (reader, "")):
                page.fill("input[name=secret]", secret)
                # The sentence of an earlier refusal is no answer to this one.
                with page.expect_response("**/v1/devices" if shown else "**/v1/bests:columns?*"):
                    page.click("button:text-is('Go on')")
                if shown:
                    page.wait_for_selector(f"text={shown}")
            page.wait_for_selector(".forest-row a")
            assert "reader · sign out" in page.inner_text("header")
            page.goto(f"{url}/?m=64&n=64&k=64")
            page.wait_for_selector(".snippets pre:has-text('Bearer')")
            for name in ("Python", "torch"):
                page.click(f".snippets button:text-is('{name}')")
                assert f'("{url}", token=open("token").read().strip())' in page.inner_text(".snippets pre")
            page.click("nav a:text-is('Campaigns')")
            page.wait_for_selector("text=lacks the scope submit")
            assert page.is_disabled("button:text-is('Create')")
            assert page.evaluate("document.cookie + localStorage.length") == "0"
            page.close()


def test_an_empty_store_says_how_to_begin(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        page = opened("/", at=url)
        for path, said in (("/", "from a recording or by a prediction"), ("/problems", "gemmtune tune"),
                           ("/campaigns", "no campaigns yet"),
                           ("/fleet", f"--device recorded:h200 --url {url}"), ("/failures", "nothing is measured yet"),
                           ("/ladder", "gemmtune campaign run")):  # fmt: skip
            page.goto(url + path)
            page.wait_for_selector(f"main :text('{said}')")
            settled(page)
        page.close()


def test_a_proxy_that_refuses_the_stream_is_asked_again(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        Fleet(store).campaign(PROBLEMS[:1])
        with serving(create_app(store)) as url:
            page = opened("/campaign?id=1", at=url, allowed="503")
            page.wait_for_selector("chart-cells figure")
            answer_first(page, "**/v1/events?*", lambda route: route.fulfill(status=503))
            with page.expect_response(lambda answer: "/v1/events" in answer.url and answer.ok):
                page.reload()
            page.wait_for_selector("chart-cells figure")
            hand = Fleet(store).hand()
            hand.work(hand.claimed())
            page.wait_for_selector("dd:text-is('1')")
            page.close()


def test_a_token_that_is_revoked_is_asked_for(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_WAIT_SECONDS", 0.1)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        _, reader = tokens.make(store, "reader", ["read"])
        with serving(create_app(store, AccessPolicy(tokens=True))) as url:
            page = opened("/problems", at=url, allowed="401")
            page.fill("input[name=secret]", reader)
            page.click("button:text-is('Go on')")
            page.wait_for_selector(".forest-row a")
            settled(page)
            tokens.revoke(store, "reader")
            page.wait_for_selector("h1:text-is('A token is needed')")
            page.close()


def test_a_best_of_the_first_of_its_policy_appears_with_the_others(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        _served(store, Gemm(512, 256, 256), Policy.CHAIN)
        page = opened("/problems", at=url)
        page.wait_for_selector(".forest[aria-rowcount='2']")
        settled(page)
        _served(store, Gemm(1024, 256, 256), Policy.SUSTAINED)
        page.wait_for_selector(".forest[aria-rowcount='3']")
        page.close()


def _served(store: Store, problem: Gemm, policy: Policy) -> None:
    final = measured(FAMILY.config({}), problem=problem, stage="final", policy=policy)
    taken = store.record(store.begin_study(study_key(problem)).id, final, PROVENANCE)
    store.set_bests([Best(problem, DEVICE, "cuda", taken, None, None, None, 1, {})])


def test_every_campaign_has_its_counts_and_one_that_ends_its_last_ones(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        for _ in range(22):
            Fleet(store).campaign(PROBLEMS[:1])
        with serving(create_app(store)) as url:
            page = opened("/campaigns", at=url)
            page.wait_for_selector("tr:nth-child(22) progress")
            settled(page)
            with page.expect_response("**/v1/campaigns/22"):
                Campaigns(store).cancel(22)
            page.wait_for_selector("tr:nth-child(1):has-text('cancelled')")
            page.close()


def test_an_open_page_does_not_jump_once_its_last_answer_is_there(opened: Opener, url: str) -> None:
    page = opened("/problems")
    held: list[Route] = []
    page.route("**/v1/importance?*", lambda route: held.append(route))
    page.click(".forest-row a >> nth=0")
    page.wait_for_selector("#finals figure")
    page.focus("#finals button")
    wait_until_asked(page, held)
    with page.expect_response("**/v1/importance?*"):
        held[0].continue_()
    page.wait_for_selector("#changes figure")
    settled(page)
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def test_a_problem_changes_while_an_answer_is_awaited_and_keeps_its_policy(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened("/", at=url)
        held: list[Route] = []
        page.route("**/v1/importance?*", lambda route: held.append(route))
        asked: list[str] = []
        page.on("request", lambda request: "/v1/best?" in request.url and asked.append(request.url))
        page.goto(f"{url}/problem?key={PROBLEM.key}&device={DEVICE}&policy=rounds")
        page.wait_for_selector("#provenance")
        keep_best(store, us=5.0)
        page.wait_for_selector("main dd:has-text('5.0')")
        assert len(asked) > 1
        assert all("policy=rounds" in address for address in asked)
        page.close()


def test_a_problem_whose_best_is_one_of_many_changes_is_read_again(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_BESTS", 0)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened(f"/problem?key={PROBLEM.key}&device={DEVICE}", at=url, allowed="404")
        page.wait_for_selector("#provenance")
        settled(page)
        keep_best(store, us=5.0)
        page.wait_for_selector("main dd:has-text('5.0')")
        page.close()


def test_older_answers_do_not_replace_newer_ones(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened("/", at=url, allowed="404")
        held: list[tuple[Route, APIResponse]] = []

        def delayed(route: Route) -> None:
            held.append((route, route.fetch(max_retries=2)))

        for path in ("best/history?*", "measurements:columns?*"):
            answer_first(page, f"**/v1/{path}", delayed)
        page.goto(f"{url}/problem?key={PROBLEM.key}&device={DEVICE}")
        page.wait_for_selector("#provenance")
        keep_best(store, us=5.0)
        page.wait_for_selector("#history:has-text('5')")
        # Asked for last, and the slowest.
        page.wait_for_selector("#search:has-text('Expected gain left')")
        settled(page)
        newer = page.locator("#history, #search").all_inner_texts()
        for route, answer in held:
            route.fulfill(response=answer)
        settled(page)
        assert page.locator("#history, #search").all_inner_texts() == newer
        page.close()


def test_defaults_of_an_earlier_question_are_not_those_of_the_next(opened: Opener, url: str) -> None:
    page = opened("/")
    page.wait_for_selector("select[name=device] option", state="attached")
    held: list[tuple[Route, APIResponse]] = []
    answer_first(page, "**/v1/explain", lambda route: held.append((route, route.fetch(max_retries=2))))
    knobs = "[aria-label^='Knobs that differ']"
    page.fill("#shape", "1x4096x14336")
    page.wait_for_selector(knobs)
    settled(page)
    with page.expect_response("**/v1/explain"):
        page.fill("#shape", "4096x4096x4096")
    settled(page)
    shown = page.inner_html(knobs)
    ((route, answer),) = held
    route.fulfill(response=answer)
    settled(page)
    assert page.inner_html(knobs) == shown
    page.close()


def test_what_changes_before_a_page_listens_is_shown(opened: Opener, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
        keep_best(store)
        page = opened("/", at=url)
        held: list[Route] = []
        page.route("**/v1/importance?*", lambda route: None)
        page.route("**/v1/events?*", lambda route: held.append(route))
        page.goto(f"{url}/problem?key={PROBLEM.key}&device={DEVICE}&policy=rounds")
        page.wait_for_selector("#provenance")
        keep_best(store, us=5.0)
        wait_until_asked(page, held)
        held.pop().continue_()
        page.wait_for_selector("main dd:has-text('5.0')")
        page.goto(f"{url}/problems?device={DEVICE}")
        page.locator("chart-scatter canvas").wait_for()
        version = int(page.request.get(f"{url}/v1/bests:columns?device={DEVICE}").json()["version"])
        assert version % versions.CHANGES == 2
        with page.expect_request(f"**/v1/bests:columns?*after={version}*"):
            wait_until_asked(page, held)
            held.pop().continue_()
        page.close()


def test_a_page_that_is_left_leaves_nothing_behind(opened: Opener, url: str) -> None:
    page = opened("/devices")
    counters = page.context.new_cdp_session(page)

    def kept(visits: int) -> int:
        for _ in range(visits):
            page.click("nav a:text-is('Problems')")
            page.locator("chart-scatter canvas").wait_for()  # no handle that would keep it
            page.click("nav a:text-is('Devices')")
            page.locator("tbody a").first.wait_for()
        settled(page)
        counters.send("HeapProfiler.collectGarbage")
        return int(counters.send("Memory.getDOMCounters")["nodes"])

    before = kept(1)
    assert kept(4) - before < 400
