"""Parts of pages: copied code asks for the problem that is shown, and figures are those that are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.app import create_app
from tests.browser.conftest import Opener, answer_first, serving, wait_until_asked
from tests.browser.test_pages import PROBLEM as PAGE
from tests.browser.test_pages import api
from tests.fleet import failing
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.evidence.store import Store
from workers.measurement import Outcome

#: What is asked, and what the call in torch and the one in C++ have to have of it.
CALLS = {
    "m=128&n=512&k=256&epilogue=bias%2Bgelu": ('gemm(a, b, bias=bias, activation="gelu")', "operands.bias = bias;"),
    "m=128&n=512&k=256&epilogue=alpha%2Bbeta&batch=4": (
        "gemm(a, b, alpha=alpha, source=source, beta=beta)", "operands.source = source;\noperands.beta = beta;"),
    "m=128&n=512&k=256&dtype=fp8_e4m3&epilogue=scaled_rowwise%2Bbias": (
        "gemm(a, b, scale_a=scale_a, scale_b=scale_b, bias=bias)", "operands.scale_b = scale_b;\noperands.bias"),
    "m=128&n=512&k=256&dtype=fp8_e5m2_promoted": (
        "b = empty(512, 256, dtype=torch.float8_e4m3fn).mT\nc = gemm(a, b, promoted=True)", "launch(stream, operands)"),
    "m=128&n=512&k=256&dtype=fp8_e4m3,fp8_e4m3,fp16,f32": ("gemm(a, b, out_dtype=torch.float16)", "operands{a, b, c}"),
    "m=128&n=512&k=256&dtype=tf32": (
        'torch.set_float32_matmul_precision("high")', "operands{a, b, c};\nif (auto error = kernel.launch"),
    "m=128&n=512&k=256&dtype=fp16_acc16": ("gemmtune.torch has no call for it", "operands{a, b, c}"),
}  # fmt: skip


class TestSnippets:
    @pytest.mark.parametrize("asked", CALLS)
    def test_the_code_computes_the_problem_that_is_asked(self, opened: Opener, asked: str) -> None:
        page = opened(f"/?{asked}")
        page.wait_for_selector(".answer .snippets")
        in_torch, in_cpp = CALLS[asked]
        page.click(".snippets button:text-is('torch')")
        assert in_torch in page.inner_text(".snippets pre")
        page.click(".snippets button:text-is('C++')")
        assert in_cpp in page.inner_text(".snippets pre")


class TestClocks:
    def test_energy_that_was_counted_under_another_policy_is_shown_and_not_estimated(
        self, opened: Opener, url: str
    ) -> None:
        best = api(url, "/v1/best?m=4096&n=4096&k=4096")
        evidence = best["evidence"]
        clocks = {"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 170.0, "temperature_c": 30, "throttle_reasons": []}
        best["evidence"] = evidence | {"product_joules": None, "clocks": clocks}
        study = api(url, f"/v1/studies/{evidence['study_id']}")
        served = next(final for final in study["finals"] if final["measurement_id"] == evidence["measurement_id"])
        study["finals"] = [final | {"product_joules": None} for final in study["finals"]]
        study["finals"].append(served | {"policy": "sustained", "served": False, "product_joules": 0.1234})
        study["tie_bands"]["sustained"] = 0.01
        page = opened("/")
        page.route("**/v1/best?*", lambda route: route.fulfill(json=best))
        page.route(f"**/v1/studies/{evidence['study_id']}", lambda route: route.fulfill(json=study))
        page.goto(url + PAGE)
        page.wait_for_selector("#clocks div:has-text('per product, measured') dd:text-is('123 mJ')")


class TestCompare:
    def test_the_energy_of_both_is_shown(self, opened: Opener, url: str) -> None:
        counted = api(url, "/v1/measurements/2") | {"product_joules": 0.0009535}
        page = opened("/")
        page.route("**/v1/measurements/2", lambda route: route.fulfill(json=counted))
        page.goto(f"{url}/compare?a=1&b=2")
        page.wait_for_selector("tr:has-text('energy of a product, mJ') td:nth-child(3):text-is('0.954')")


class TestFailures:
    def test_a_wrong_result_that_is_not_listed_is_counted(self, opened: Opener, url: str) -> None:
        body = api(url, "/v1/failures") | {"wrong_results": 3, "total": 70_000, "read": 50_000}
        page = opened("/")
        page.route("**/v1/failures*", lambda route: route.fulfill(json=body))
        page.goto(f"{url}/failures")
        page.wait_for_selector("div:has(dt:text-is('wrong results by our kernels')) dd.loss:text-is('✕ 3')")
        page.wait_for_selector(".says:has-text('The newest 50,000 are shown.')")


class TestEvidence:
    def test_that_of_a_neighbour_is_not_taken_for_the_problems_own(self, opened: Opener, url: str) -> None:
        key = "gemm:bf16,bf16,bf16,f32:nt:48x6144x4096:b1:none"
        best = api(url, "/v1/best?m=48&n=6144&k=4096")
        assert best["source"] == "nearest"
        assert best["evidence"]["versus_cublaslt_first"]
        for path in ("/?m=48&n=6144&k=4096", f"/problem?key={key}&device=NVIDIA+H200"):
            page = opened(path, allowed="404")
            page.wait_for_selector(".badge.nearest")
            said = page.inner_text("main")
            assert "of the roofline bound" in said
            assert [words for words in ("cuBLASLt’s first choice", "wrong", "Compare it") if words in said] == []


class TestParked:
    def test_those_that_are_left_out_are_said(self, opened: Opener, url: str) -> None:
        body = api(url, "/v1/campaigns/1/problems:columns")
        plain = {name: column if isinstance(column, list) else [column["values"][at] for at in column["at"]]
                 for name, column in body["columns"].items()}  # fmt: skip
        body |= {"rows": 101, "columns": {name: column[:1] * 101 for name, column in plain.items()}}
        body["columns"]["status"] = ["parked"] * 101
        page = opened("/")
        page.route("**/problems:columns", lambda route: route.fulfill(json=body))
        page.goto(f"{url}/campaign?id=1")
        page.wait_for_selector(".says:has-text('The first 100 are shown')")
        assert page.locator("[aria-label='Parked problems'] tbody tr").count() == 100


class TestTiles:
    def test_a_tile_whose_candidates_failed_is_not_called_untried(self, opened: Opener, tmp_path: Path) -> None:
        with Store.open(f"sqlite:///{tmp_path}/store.db") as store, serving(create_app(store)) as url:
            study = store.begin_study(study_key(PROBLEM)).id
            store.record(study, failing(FAMILY.config({"tile_n": 64}), PROBLEM, Outcome.LAUNCH), PROVENANCE)
            page = opened(f"/problem?key={PROBLEM.key}&device={DEVICE}", at=url, allowed="404")
            page.wait_for_selector("#tiles td:has-text('✕'):has-text('all that was tried failed')")
            # Nothing has a time: no number is explained.
            assert "% slower" not in page.inner_text("#tiles")
            page.wait_for_selector("#search:has-text('No screened candidate has a time')")
            store.record(study, measured(FAMILY.config({"tile_n": 128}), 20.0, PROBLEM), PROVENANCE)
            page.wait_for_selector("#tiles .says:has-text('the fastest screened, 20 µs')")
            assert page.locator("#tiles td:has-text('✕')").count() == 1
            page.close()


class TestFinals:
    def test_under_the_policy_that_is_asked_finals_are_of_that_one(self, opened: Opener, url: str) -> None:
        best = api(url, "/v1/best?m=4096&n=4096&k=4096")
        evidence = best["evidence"]
        study = api(url, f"/v1/studies/{evidence['study_id']}")
        served = next(final for final in study["finals"] if final["measurement_id"] == evidence["measurement_id"])
        other = "burst" if served["policy"] != "burst" else "chain"
        study["finals"].append(served | {"policy": other, "served": False})
        study["tie_bands"][other] = 0.02
        best["evidence"] = evidence | {"policy": other}
        page = opened("/")
        page.route("**/v1/best?*", lambda route: route.fulfill(json=best))
        page.route(f"**/v1/studies/{evidence['study_id']}", lambda route: route.fulfill(json=study))
        page.goto(f"{url}{PAGE}&policy={other}")
        page.wait_for_selector(f"#finals h2:text-is('Finals under {other}')")

    def test_the_librarys_rivals_are_told_apart_by_what_differs(self, opened: Opener, url: str) -> None:
        evidence = api(url, "/v1/best?m=4096&n=4096&k=4096")["evidence"]
        study = api(url, f"/v1/studies/{evidence['study_id']}")
        (served, *_) = [one for one in study["finals"] if one["measurement_id"] == evidence["measurement_id"]]
        rivals = [{"rank": 0, "algorithm": 66, "tile": tile, "cluster": 8} for tile in (24, 157)]
        study["finals"] = [served] + [
            served | {"config": {"family": "cublaslt", "knobs": knobs}, "served": False, "library": True}
            for knobs in rivals
        ]  # fmt: skip
        page = opened("/")
        page.route(f"**/v1/studies/{evidence['study_id']}", lambda route: route.fulfill(json=study))
        page.goto(f"{url}{PAGE}")
        page.click("#finals button:text-is('As a table')")
        assert {"cuBLASLt tile 24", "cuBLASLt tile 157"} <= {*page.locator("#finals td").all_inner_texts()}


class TestFunnel:
    def test_a_count_that_failed_can_be_asked_again(self, opened: Opener) -> None:
        page = opened(PAGE, allowed="503")
        busy = {"detail": "busy"}
        answer_first(page, "**/v1/funnel?*legal=true*", lambda route: route.fulfill(status=503, json=busy))
        page.click("#funnel button:text-is('Count')")
        page.wait_for_selector("#funnel button:text-is('…')", state="detached")
        page.click("#funnel button:text-is('Count')")
        page.wait_for_selector("#funnel button", state="detached")


def test_workers_that_drain_count_among_those_that_may_be_busy(opened: Opener, url: str) -> None:
    fleet = api(url, "/v1/fleet")
    fleet["devices"] = [fleet["devices"][0] | {"live": 1, "draining": 1, "busy": 2}]
    page = opened("/")
    page.route("**/v1/fleet", lambda route: route.fulfill(json=fleet))
    page.click("nav a:text-is('Fleet')")
    page.wait_for_selector("dd:text-is('2 of 2 busy')")


def test_a_card_that_takes_seconds_says_so(opened: Opener, url: str) -> None:
    page = opened("/")
    held: list[object] = []
    page.route("**/v1/importance?*", lambda route: held.append(route))
    page.goto(url + PAGE)
    wait_until_asked(page, held)
    page.wait_for_selector("#changes:has-text('takes seconds')")


def test_a_selection_of_nothing_has_no_empty_table(opened: Opener) -> None:
    page = opened("/problems")
    table = "figure.grid:has-text('N × K at one M')"
    page.wait_for_selector(table)
    page.fill("[name=find]", "nothing")
    page.wait_for_selector(".sentence:has-text('No problem matches')")
    page.wait_for_selector(table, state="detached")
