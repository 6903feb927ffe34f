"""Every page on a filled store: what it shows equals what the API says, and its address holds its whole state."""

from __future__ import annotations

import json
import re
import statistics
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tests.browser.conftest import Opener, settled, wait_until_asked
from tests.browser.filled import BESTS, FIRST, NASTY

if TYPE_CHECKING:
    import pytest
    from playwright.sync_api import BrowserContext, Route

PROBLEM = f"/problem?key={FIRST}&device=NVIDIA+H200"
ROWS = ".forest-row a"


def api(url: str, path: str) -> Any:  # noqa: ANN401
    with urllib.request.urlopen(url + path) as answer:
        return json.load(answer)


class TestAsk:
    def test_it_answers_while_one_types_and_keeps_the_question_in_the_url(self, opened: Opener, url: str) -> None:
        page = opened("/")
        page.fill("#shape", "4096x4096x4096")
        page.wait_for_selector(".answer .stale")
        best = api(url, "/v1/best?m=4096&n=4096&k=4096")
        assert f"{best['time_us']:.1f}" in page.inner_text(".answer dl")
        assert f"{best['evidence']['versus_cublaslt_first']['value']:.3f}×" in page.inner_text(".answer dl")
        assert urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)["m"] == ["4096"]
        again = opened(page.url.removeprefix(url))
        again.wait_for_selector(".answer .stale")
        assert again.inner_text(".answer dl") == page.inner_text(".answer dl")

    def test_it_reads_what_people_write(self, opened: Opener) -> None:
        page = opened("/")
        page.fill("#shape", "7 4096 4096 fp8 nn b8")
        page.wait_for_selector(".answer .predicted, .answer .nearest")
        assert "fp8_e4m3 nn 7×4096×4096 ×8" in page.inner_text(".answer h2")

    def test_a_wrong_question_is_answered_by_a_sentence(self, opened: Opener) -> None:
        page = opened("/", allowed="422")
        for text, said in (
            ("4096", "Write M, N and K"),
            ("1x2x3 bf17", "no dtype"),
            ("0x4x4", "greater than or equal to 1"),
        ):
            page.fill("#shape", text)
            page.wait_for_selector(f"#shape-note:has-text('{said}')")

    def test_a_late_answer_to_what_was_typed_before_is_not_shown(self, opened: Opener) -> None:
        page = opened("/", allowed="422")
        held: list[Route] = []
        page.route("**/v1/best?m=0&*", lambda route: held.append(route))
        page.fill("#shape", "0x4x4")
        page.wait_for_url("**/?m=0&**")
        wait_until_asked(page, held)
        page.fill("#shape", "4096x4096x4096")
        page.wait_for_selector(".answer .stale")
        with page.expect_response("**/v1/best?m=0&*"):
            held[0].continue_()
        settled(page)
        assert page.is_visible(".answer .stale")
        assert not page.inner_text("#shape-note")

    def test_it_is_copied_as_code(self, opened: Opener, url: str) -> None:
        page = opened("/?m=4096&n=4096&k=4096")
        parts = {
            "curl": f"{url}/v1/best?m=4096", "Python": "client.best(4096, 4096, 4096", "torch": "gemm(a, b)",
            "C++": f'kernel.load(bundle, "{FIRST}")', "command line": "gemmtune best",
        }  # fmt: skip
        for name, part in parts.items():
            page.click(f".snippets button:text-is('{name}')")
            assert part in page.inner_text(".snippets pre")
        assert "gemmtune explain 4096x4096x4096 --device 'NVIDIA H200' --config" in page.inner_text(".snippets pre")
        page.click(".snippets button:text-is('curl')")
        assert "token" not in page.inner_text(".snippets pre")  # this service needs none

    def test_what_is_copied_and_linked_asks_under_the_chosen_policy(self, opened: Opener) -> None:
        page = opened("/?m=4096&n=4096&k=4096&policy=burst")
        parts = {"curl": "&policy=burst'", "Python": ', policy="burst")', "command line": "H200' --policy burst\n"}
        for name, part in parts.items():
            page.click(f".snippets button:text-is('{name}')")
            assert part in page.inner_text(".snippets pre")
        assert page.inner_text(".snippets pre").count("policy") == 1  # to explain knows none
        page.click("a:has-text('Why this one')")
        page.wait_for_selector("p:has-text('nothing was measured under burst')")
        page.click("a:has-text('Copy it as code')")
        page.wait_for_selector("option[value=burst]:checked", state="attached")
        page.wait_for_selector(".answer:has-text('nothing was measured under burst')")

    def test_an_unknown_device_is_said_and_no_other_one_answers(self, opened: Opener) -> None:
        page = opened("/?m=4096&n=4096&k=4096&device=H2000", allowed="the server responded with a status of 404")
        page.wait_for_selector(""".sentence:has-text("device 'H2000' is unknown: the nearest known ones are")""")
        settled(page)
        assert not page.query_selector(".answer")

    def test_what_was_typed_last_does_not_change_the_address_of_the_next_page(self, opened: Opener, url: str) -> None:
        page = opened("/")
        page.fill("#shape", "512x512x512")
        page.click("nav a:text-is('Fleet')")
        page.wait_for_selector("main h2")
        page.wait_for_timeout(200)
        assert page.url == f"{url}/fleet"

    def test_an_algorithm_of_the_library_is_not_taken_for_a_config_of_ours(self, opened: Opener, url: str) -> None:
        page = opened("/")
        config = {"family": "cublaslt", "key": "", "knobs": {"algorithm": 66, "tile": 29, "stages": 35, "cluster": 3}}
        best = api(url, "/v1/best?m=4096&n=4096&k=4096") | {"config": config}
        page.route("**/v1/best?*", lambda route: route.fulfill(json=best))
        page.fill("#shape", "4096x4096x4096")
        page.wait_for_selector(".answer:has-text('cublaslt')")
        assert "35 stages" not in page.inner_text(".answer")
        page.click(".snippets button:text-is('command line')")
        assert "gemmtune explain" not in page.inner_text(".snippets pre")


class TestProblems:
    def test_its_headline_is_of_the_selection_and_not_of_the_view(self, opened: Opener, url: str) -> None:
        page = opened("/problems")
        page.wait_for_selector(ROWS)
        gain = api(url, "/v1/bests:columns?device=NVIDIA%20H200")["gain"]["first"]
        assert f"{gain['geometric_mean']:.3f}×" in page.inner_text("#headline")
        assert f"({gain['low']:.3f}\u00a0–\u2060\u00a0{gain['high']:.3f})" in page.inner_text("#headline")
        page.click("button.chip:has-text('fp8_e4m3')")
        page.wait_for_selector(".forest[aria-rowcount='2']")
        assert re.search(r"the selection \(\d\.\d{3}\W+\d\.\d{3}\)", page.inner_text("#headline"))
        assert "dtype=fp8_e4m3" in page.url
        assert "selected" in page.inner_text("#headline")
        page.go_back()
        page.wait_for_selector(f".forest[aria-rowcount='{BESTS + 1}']")

    def test_its_rows_are_those_of_the_api_in_the_order_asked(self, opened: Opener, url: str) -> None:
        page = opened("/problems?sort=time")
        page.wait_for_selector(ROWS)
        columns = api(url, "/v1/bests:columns?device=NVIDIA%20H200")["columns"]
        keys = [key for _, key in sorted(zip(columns["time_us"], columns["key"], strict=True))]
        links = [urllib.parse.parse_qs(urllib.parse.urlsplit(str(link.get_attribute("href"))).query)["key"][0]
                 for link in page.query_selector_all(ROWS)]  # fmt: skip
        assert links == keys

    def test_it_finds_what_its_rows_are_called(self, opened: Opener) -> None:
        page = opened("/problems")
        page.wait_for_selector(ROWS)
        page.fill("input[name=find]", "bf16 nn 8192×4096×28672")
        page.wait_for_selector("#headline dt:has-text('problems selected') + dd:text-is('1')")

    def test_a_device_may_be_called_as_users_call_it(self, opened: Opener) -> None:
        page = opened("/problems?device=h200")
        page.wait_for_selector(ROWS)
        assert page.input_value("select[name=device]") == "NVIDIA H200"

    def test_a_best_that_a_rule_forbids_by_now_is_marked(self, opened: Opener, url: str) -> None:
        page = opened("/problems")
        page.wait_for_selector(ROWS)
        assert "✕" not in page.inner_text(".forest")
        body = api(url, "/v1/bests:columns?device=NVIDIA%20H200")
        body["columns"]["forbidden"][0] = True
        page.route("**/v1/bests:columns?*", lambda route: route.fulfill(json=body))
        page.reload()
        page.wait_for_selector(f"{ROWS}:text('✕')")
        assert page.inner_text(".forest").count("✕") == 1
        ratios = [ratio for ratio in body["columns"]["first"][1:] if ratio is not None]
        counted = page.inner_text("#headline")
        assert f"{statistics.geometric_mean(ratios):.3f}×" in counted
        assert "not counted" in counted

    def test_keys_walk_its_rows_and_open_one(self, opened: Opener) -> None:
        page = opened("/problems")
        page.wait_for_selector(ROWS)
        page.focus(".forest-body")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.place") == "1"
        page.keyboard.press("Enter")
        page.wait_for_url("**/problem?**")


class TestProblem:
    def test_its_numbers_are_those_of_the_api(self, opened: Opener, url: str) -> None:
        page = opened(PROBLEM)
        page.wait_for_selector("#finals chart-strips figure")
        best = api(url, "/v1/best?m=4096&n=4096&k=4096")
        study = api(url, f"/v1/studies/{best['evidence']['study_id']}")
        page.click("#finals button:text-is('As a table')")
        page.wait_for_selector("#finals tbody tr")
        rows = page.query_selector_all("#finals tbody tr")
        policy = next(final["policy"] for final in study["finals"] if final["served"])
        assert len(rows) == sum(final["policy"] == policy for final in study["finals"])
        assert f"{best['time_us']:.1f} µs" in page.inner_text("main dl")
        assert best["evidence"]["build_digest"][:20] in page.inner_text("#provenance")
        assert str(len(best["evidence"]["samples_us"])) in page.inner_text("#provenance")
        outlook = api(url, f"/v1/studies/{best['evidence']['study_id']}/outlook")
        page.wait_for_selector(f"#search .says:has-text('Expected gain left: {100 * outlook['gain']:.1f} %')")
        assert f"{outlook['pool'] - outlook['tried']:,} untried" in page.inner_text("#search .says")

    def test_more_measurements_than_it_shows_are_sampled_and_said_to_be(
        self, opened: Opener, browser: BrowserContext, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As in a store with a million: nothing is held, and the page asks for fewer than there are.
        monkeypatch.setattr("tuner.views.measurements.MOST_HELD", 0)
        total = api(url, f"/v1/measurements:columns?problem={FIRST}&limit=1")["total"]
        many = re.compile("limit=150000")
        browser.route(many, lambda route: route.continue_(url=route.request.url.replace("=150000", f"={total - 1}")))
        try:
            page = opened(PROBLEM)
            page.wait_for_selector(f"#search .says:has-text('A sample: one of every 2, of {total}.')")
            assert page.is_visible("#search chart-scatter canvas")
        finally:
            browser.unroute(many)

    def test_a_cell_of_the_tiles_finds_its_candidates_in_the_search(self, opened: Opener) -> None:
        page = opened(PROBLEM)
        page.click("#tiles button.cell >> nth=0")
        page.wait_for_selector("#tiles button[aria-pressed=true]")
        assert "cell=" in page.url

    def test_the_one_that_is_compared_differs_only_in_what_is_shown(self, opened: Opener) -> None:
        page = opened(PROBLEM)
        page.click("text=Compare it with the next")
        page.wait_for_selector("h1:text('What differs?')")
        for row in page.query_selector_all("tbody tr"):
            cells = [cell.inner_text() for cell in row.query_selector_all("td")]
            assert len(cells) < 2 or cells[0] != cells[1]

    def test_two_without_clocks_are_not_called_alike_in_them(self, opened: Opener, url: str) -> None:
        page = opened("/compare?a=1&b=2")
        told = {"clocks": None, "product_joules": None, "taken_at": "2026-11-25T00:00:00Z"}
        bare = {number: api(url, f"/v1/measurements/{number}") | told for number in ("1", "2")}
        page.route(re.compile(r"/v1/measurements/\d$"), lambda route: route.fulfill(json=bare[route.request.url[-1]]))
        page.reload()
        page.wait_for_selector("text=Nothing: no clock was read.")

    def test_a_result_with_an_infinite_error_is_compared(self, opened: Opener, url: str) -> None:
        wrong = api(url, "/v1/measurements/2") | {"outcome": "wrong_result", "samples_us": [], "median_us": None}
        wrong["verification"] = {"elements": 4, "mismatches": 4, "worst_ratio": None, "reference": "float64"}
        page = opened("/")
        page.route("**/v1/measurements/2", lambda route: route.fulfill(json=wrong))
        page.goto(f"{url}/compare?a=1&b=2")
        page.wait_for_selector("tr:has-text('largest error / bound') td:text-is('∞')")

    def test_without_clocks_it_is_not_said_that_nothing_throttled(self, opened: Opener, url: str) -> None:
        bare = api(url, "/v1/measurements/2") | {"clocks": None}
        page = opened("/")
        page.route("**/v1/measurements/2", lambda route: route.fulfill(json=bare))
        page.goto(f"{url}/compare?a=1&b=2")
        page.wait_for_selector("tr:has-text('throttled') td:nth-child(3):text-is('–')")

    def test_an_untuned_one_says_so(self, opened: Opener) -> None:
        page = opened("/problem?key=gemm:bf16,bf16,bf16,f32:nt:100x200x304:b1:none", allowed="404")
        page.wait_for_selector(".badge.predicted, .badge.nearest")

    def test_its_layouts_are_those_of_its_config(self, opened: Opener) -> None:
        page = opened(PROBLEM)
        page.click("text=Its layouts")
        page.wait_for_selector("nav.own a[aria-current]:text-is('A: swizzle')")
        page.click("nav.own a:text-is('B: TMA boxes')")
        page.wait_for_selector(".drawing svg title:has-text('box')", state="attached")
        assert page.query_selector("main .sentence.loss") is None


def test_a_campaigns_mean_leaves_out_what_the_library_won(opened: Opener, url: str) -> None:
    page = opened("/campaign?id=1")
    page.wait_for_selector("dt:text-is('geometric mean of 1 that our kernels won')")
    assert f"{api(url, '/v1/campaigns/1/summary')['gain']['geometric_mean']:.3f}×" in page.inner_text("main dl")
    body = api(url, "/v1/campaigns/1/problems:columns")
    body["columns"]["family"]["values"] = ["cublaslt"] * len(body["columns"]["family"]["values"])
    page.route("**/problems:columns", lambda route: route.fulfill(json=body))
    page.reload()
    page.wait_for_selector("chart-cells figure")
    assert "geometric mean" not in page.inner_text("main dl")


def test_a_campaigns_revoked_winners_are_marked_and_no_gain(opened: Opener, url: str) -> None:
    body = api(url, "/v1/campaigns/1/problems:columns")
    body["columns"]["revoked"] = [each is not None for each in body["columns"]["measurement_id"]]
    revoked = body["columns"]["revoked"].index(True)
    page = opened("/campaign?id=1")
    page.route("**/problems:columns", lambda route: route.fulfill(json=body))
    page.reload()
    page.wait_for_selector("chart-cells figure")
    cell = page.evaluate("at => document.querySelector('chart-cells').data.cell(at)", revoked)
    assert (cell["sign"], cell["label"]) == ("⊘", "")
    assert "revoked" in cell["text"]
    assert "faster" not in cell["text"]
    assert "geometric mean" not in page.inner_text("main dl")


def test_parked_problems_have_a_column_of_failing_configs_if_any_has_one(opened: Opener, url: str) -> None:
    body = api(url, "/v1/campaigns/1/problems:columns")
    body["columns"]["status"]["values"] = ["parked"] * len(body["columns"]["status"]["values"])
    page = opened("/campaign?id=1")
    page.route("**/problems:columns", lambda route: route.fulfill(json=body))
    for failing in ("", "mma:tile_m=64"):
        body["columns"]["failing_config"]["values"] = [failing] * len(body["columns"]["failing_config"]["values"])
        page.reload()
        page.wait_for_selector("h2:text-is('Parked')")
        table = page.locator("[aria-label='Parked problems']")
        assert table.locator("tbody tr").first.locator("th, td").count() == (3 if failing else 2)
        assert table.locator("thead th").count() == (3 if failing else 2)


def test_a_problems_cards_leave_out_what_was_revoked(opened: Opener, url: str) -> None:
    body = api(url, f"/v1/measurements:columns?problem={FIRST}&device=NVIDIA H200".replace(" ", "%20"))
    body["columns"]["revoked"] = [place % 2 == 0 for place in range(body["rows"])]
    screens = [stage == "screen" for stage in map(body["columns"]["stage"]["values"].__getitem__,
                                                  body["columns"]["stage"]["at"])]  # fmt: skip
    page = opened("/")
    page.route("**/v1/measurements:columns?*", lambda route: route.fulfill(json=body))
    page.goto(url + PROBLEM)
    page.wait_for_selector(f"#failures :text('{body['rows'] // 2} measurements')")
    page.wait_for_selector("#search figure")
    marks = page.evaluate("() => document.querySelector('#search chart-scatter').data.y.length")
    assert 0 < marks <= sum(screens[1::2])


def test_rounds_that_the_fleet_leaves_out_are_said(opened: Opener, url: str) -> None:
    page = opened("/fleet")
    page.wait_for_selector("chart-lanes .says")
    assert "newest" not in page.inner_text("chart-lanes .says")
    rounds = api(url, "/v1/rounds?limit=1")
    page.route("**/v1/rounds?*", lambda route: route.fulfill(json=rounds | {"items": rounds["items"] * 1000}))
    page.reload()
    page.wait_for_selector("chart-lanes .says:has-text('Only the newest 1000 are shown.')")


class TestExplain:
    def test_values_are_struck_out_before_they_are_picked(self, opened: Opener) -> None:
        page = opened("/explain?knobs=tile_n=256,epilogue=direct")
        page.wait_for_selector("#verdict h2")
        assert "Legal" in page.inner_text("#verdict h2")
        stage = page.locator("fieldset:has(code:text-is('stages')) button.illegal").first
        assert "smem.capacity" in str(stage.get_attribute("title"))
        stage.click()
        page.wait_for_selector("#verdict h2:has-text('Illegal')")
        assert page.query_selector("fieldset:has(code:text-is('stages')) button.mends")
        assert "smem.capacity" in page.inner_text("#verdict")
        page.click("button:text-is('Take it')")
        page.wait_for_selector("#verdict h2:has-text('Legal')")


def test_a_rule_has_a_page(opened: Opener) -> None:
    opened("/rules?id=smem.capacity").wait_for_selector("h1:text('smem.capacity')")


def test_large_answers_are_read_in_pieces(opened: Opener) -> None:
    page = opened("/")
    whole = {"columns": {"at": list(range(9_000)), "said": ['":[1,2]', '["at":[3'], "few": [1, None]}, "rows": 9_000}
    assert page.evaluate(
        """async text => {
            const root = document.querySelector('script[type=module]').src.replace('app.js', '');
            const {pieces, split} = await import(root + 'lib/pieces.js');
            return [split(text).arrays.length, await pieces(new Response(text))];
        }""",
        json.dumps(whole, separators=(",", ":")),
    ) == [1, whole]


def test_hostile_names_are_text(opened: Opener) -> None:
    for path in ("/campaigns", "/campaign?id=1"):
        page = opened(path)
        page.wait_for_selector(f"text={NASTY[:12]}")
        assert page.evaluate("window.broken") is None
        assert page.query_selector("main img, main script") is None


UNKNOWN: Final = (
    "/problems?device=H2000", "/problems?dtype=bf17", "/device?name=X", "/device", "/campaign?id=99", "/campaign?id=x",
    "/compare?a=1", "/rules?id=smem.capacty", "/rules?family=gmv", "/compare?a=99999&b=1",
    *(f"/problem?key={urllib.parse.quote(key)}"
      for key in ("nonsense", "gemm:bf16,bf16,bf16,f32:nt:0x4x4:b1:none", NASTY)),
)  # fmt: skip


def test_unknown_things_are_sentences(opened: Opener, url: str) -> None:
    page = opened(UNKNOWN[0], allowed="the server responded with a status of 4")
    for path in UNKNOWN:
        page.goto(url + path)
        page.wait_for_selector("main .sentence")
        assert len(page.inner_text("main .sentence")) > 20, path
        assert page.evaluate("window.broken") is None


def test_links_open_in_the_same_document_and_back_returns(opened: Opener) -> None:
    page = opened("/problems")
    page.evaluate("window.same = true")
    page.click(f"{ROWS} >> nth=0")
    page.wait_for_selector("#finals")
    page.go_back()
    page.wait_for_selector(ROWS)
    assert page.evaluate("window.same")
    assert len(page.query_selector_all(ROWS)) == BESTS
