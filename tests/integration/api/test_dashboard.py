"""The page: its content, its access control, and that it contains nothing executable."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from fastapi.testclient import TestClient

from api.access import AccessPolicy
from api.app import create_app
from api.dashboard.plot import plot
from space.kinds.gemm import Gemm
from tests.fleet import PROBLEMS, Fleet
from tests.integration.api.asking import problem_of
from tests.support import DEVICE, keep_best
from tuner.evidence import tokens
from tuner.evidence.records import Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest


class Page(HTMLParser):
    """Tags and text of a page; fails where tags don't match."""

    VOID = frozenset({"meta", "link", "input", "line", "circle", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def http(store: Store) -> Iterator[TestClient]:
    for m in (256, 512, 1024):
        keep_best(store, Gemm(m, 256, 256))
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client


class TestPage:
    def test_it_shows_devices_and_bests_with_their_evidence(self, http: TestClient) -> None:
        page = Page(http.get("/").text)
        for shown in (DEVICE, "bf16 nt 512x256x256", "1.100", "1.050 – 1.150", "2 compile", "driver 580.1"):
            assert shown in page.text, shown
        assert sum(tag == "circle" for tag, _ in page.tags) == 3

    def test_it_shows_campaigns(self, store: Store) -> None:
        fleet = Fleet(store)
        hand = fleet.hand()
        request = CampaignRequest("nightly <b>", PROBLEMS[:3], ((DEVICE, "cuda"),), CampaignBudget(20, 11))
        fleet.campaigns.create(request)
        hand.work(hand.claimed())
        with TestClient(create_app(store)) as http:
            page = Page(http.get("/").text)
        for shown in ("nightly <b>", "running", "1 of 3"):
            assert shown in page.text, shown
        assert any(tag == "meta" and attrs.get("http-equiv") == "refresh" for tag, attrs in page.tags)

    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ("m=256&n=256&k=256", "measured on NVIDIA H200"),
            ("m=300&n=256&k=256", "was not measured"),
            ("m=x&n=256&k=256", "whole numbers"),
            ("m=-1&n=256&k=256", "must be 1 to"),
            ("m=256&n=256&k=256&dtype=bf17", "bf17"),
        ],
    )
    def test_its_form_asks(self, http: TestClient, query: str, shown: str) -> None:
        response = http.get(f"/?{query}&layout=nt&device=NVIDIA+H200")
        assert response.status_code == 200
        assert shown in Page(response.text).text

    def test_bests_are_found_and_paged(self, http: TestClient, store: Store) -> None:
        for m in range(2, 90):
            keep_best(store, Gemm(m, 8, 8))
        http.app.state.follower.poll()  # type: ignore[attr-defined]
        assert "1 of 91" in Page(http.get("/?find=1024x").text).text
        seen: list[str] = []
        url = "/?find=x8x8"
        while url:
            text = http.get(url).text
            seen += re.findall(r'<th scope="row">bf16 nt (\d+x8x8)', text)
            following = re.search(r'href="([^"]+)">next<', text)
            url = following[1].replace("&amp;", "&") if following else ""
        assert len(seen) == len(set(seen)) == 88

    def test_an_empty_store_says_how_to_begin(self, store: Store) -> None:
        with TestClient(create_app(store)) as http:
            text = Page(http.get("/").text).text
        assert "gemmtune tune" in text
        assert "There are no campaigns yet" in text

    def test_what_is_shown_cant_run(self, http: TestClient) -> None:
        nasty = '"><script>alert(1)</script>'
        response = http.get("/", params={"find": nasty, "m": "1", "n": "1", "k": "1", "dtype": nasty})
        page = Page(response.text)
        assert not any(tag == "script" for tag, _ in page.tags)
        assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy

    def test_nothing_is_loaded_from_elsewhere(self, http: TestClient) -> None:
        page = Page(http.get("/").text)
        links = [attrs.get(name) or "" for _, attrs in page.tags for name in ("href", "src", "action") if name in attrs]
        assert links
        assert all(link.startswith("/") for link in links)
        style = http.get("/style.css")
        assert style.headers["content-type"].startswith("text/css")
        assert "url(" not in style.text

    @pytest.mark.parametrize("query", ["colour=red", "cursor=nonsense", f"find={'x' * 200}"])
    def test_bad_queries_are_problems(self, http: TestClient, query: str) -> None:
        assert http.get(f"/?{query}").status_code in (400, 422)


class TestWhoMayLook:
    def test_a_browser_asks_for_the_token_as_a_password(self, store: Store) -> None:
        _, reader = tokens.make(store, "reader", ["read"])
        _, worker = tokens.make(store, "worker", ["work"])
        app = create_app(store, AccessPolicy(tokens=True))
        with TestClient(app, raise_server_exceptions=False) as http:
            refused = http.get("/")
            problem_of(refused, 401, "token-needed")
            assert refused.headers["www-authenticate"].startswith("Basic")
            assert "reader" in http.get("/", auth=("anybody", reader)).text
            assert http.get("/", headers={"Authorization": f"Bearer {reader}"}).status_code == 200
            for wrong in (("anybody", worker), ("anybody", ""), ("anybody", "x")):
                assert http.get("/", auth=wrong).status_code == 401
            broken = {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe").decode()}
            assert http.get("/", headers=broken).status_code == 401

    def test_a_password_is_good_for_nothing_but_the_page(self, store: Store) -> None:
        _, admin = tokens.make(store, "admin", ["admin"])
        with TestClient(create_app(store, AccessPolicy(tokens=True)), raise_server_exceptions=False) as http:
            for method, path in (("GET", "/v1/devices"), ("POST", "/v1/campaigns"), ("GET", "/metrics")):
                problem_of(http.request(method, path, auth=("x", admin)), 401, "token-needed")


class TestPlot:
    def test_losses_gains_and_ties_are_told_apart(self) -> None:
        drawn = plot([("a", Ratio(1.2, 1.1, 1.3, True)), ("b", Ratio(0.9, 0.8, 0.95, True)),
                      ("c", Ratio(1.0, 0.9, 1.1, True))])  # fmt: skip
        assert drawn is not None
        assert [(dot.label, dot.side) for dot in drawn.dots] == [("a", "gain"), ("c", "even"), ("b", "loss")]
        assert all(0 <= dot.low <= dot.x <= dot.high <= drawn.width for dot in drawn.dots)
        assert drawn.dots[0].low > drawn.one > drawn.dots[2].high

    def test_without_ratios_there_is_none(self) -> None:
        assert plot([]) is None
