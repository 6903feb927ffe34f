"""Access control: tokens, scopes, hosts, limits, and the middleware's other refusals."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from api import middleware
from api.access import AccessPolicy, decide
from api.addresses import networks
from api.app import create_app
from api.bodies import MOST_BODY_BYTES
from api.limits import RateLimiter
from api.logs import JsonFormatter
from tests.integration.api.asking import ASKED, problem_of
from tests.support import DEVICE, PROBLEM, keep_best
from tuner.errors import SettingsError
from tuner.evidence import tokens
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest

SLOW_REFILL = 0.001
"""Requests a second: a bucket that holds one request and stays empty for as long as a test can last."""


def asking(app: FastAPI, secret: str | None = None) -> TestClient:
    app.state.follower.poll()
    app.state.shown.warmed.set()
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return TestClient(app, headers=headers, raise_server_exceptions=False)


class TestTokens:
    def test_without_a_token_nothing_is_told(self, store: Store) -> None:
        http = asking(create_app(store, AccessPolicy(tokens=True)))
        response = http.get("/v1/best", params=ASKED)
        # Who meets it typed a command, or calls from Python, more often than writes headers.
        detail = problem_of(response, 401, "token-needed")["detail"]
        assert all(said in detail for said in ("Authorization: Bearer", "GEMMTUNE_TOKEN_FILE", "token=…"))
        assert response.headers["www-authenticate"].startswith("Bearer")

    def test_health_needs_none(self, store: Store) -> None:
        assert asking(create_app(store, AccessPolicy(tokens=True))).get("/healthz").status_code == 200

    @pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic eDp5", "bearer wrong", "Bearer " + "x" * 5000])
    def test_what_is_no_token_is_refused(self, store: Store, header: str) -> None:
        http = asking(create_app(store, AccessPolicy(tokens=True)))
        problem_of(http.get("/v1/best", params=ASKED, headers={"Authorization": header}), 401, "token-needed")

    def test_a_good_token_reads(self, store: Store) -> None:
        _, secret = tokens.make(store, "reader", ["read"])
        service = asking(create_app(store, AccessPolicy(tokens=True)), secret)
        assert service.get("/v1/best", params=ASKED).status_code == 200

    def test_a_token_of_another_scope_is_told_which_it_needs(self, store: Store) -> None:
        _, secret = tokens.make(store, "node-7", ["work"])
        response = asking(create_app(store, AccessPolicy(tokens=True)), secret).get("/v1/best", params=ASKED)
        assert "needs read" in problem_of(response, 403, "scope-needed")["detail"]
        assert 'scope="read"' in response.headers["www-authenticate"]

    def test_revoked_and_expired_tokens_are_refused(self, store: Store) -> None:
        _, revoked = tokens.make(store, "old", ["read"])
        _, expired = tokens.make(store, "short", ["read"], timedelta(microseconds=1))
        tokens.revoke(store, "old")
        app = create_app(store, AccessPolicy(tokens=True))
        assert "revoked" in problem_of(asking(app, revoked).get("/v1/best"), 401, "token-needed")["detail"]
        assert "expired" in problem_of(asking(app, expired).get("/v1/best"), 401, "token-needed")["detail"]


class TestWhenTokensMayBeOff:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_alone_on_loopback(self, host: str) -> None:
        for mode in ("auto", "off"):
            assert not decide(mode, host, embedded=True).tokens  # type: ignore[arg-type]
        assert decide("on", host, embedded=True).tokens

    @pytest.mark.parametrize(
        ("host", "embedded"), [("0.0.0.0", True), ("10.0.0.1", True), ("node7", True), ("127.0.0.1", False)]
    )
    def test_nowhere_else(self, host: str, embedded: bool) -> None:
        assert decide("auto", host, embedded).tokens
        with pytest.raises(SettingsError, match="tokens can't be off"):
            decide("off", host, embedded)


class TestMiddleware:
    def test_without_tokens_only_loopback_names_are_answered(self, store: Store) -> None:
        app = create_app(store, decide("auto", "127.0.0.1", embedded=True))
        for host in ("127.0.0.1:8643", "localhost", "LOCALHOST:1", "[::1]:8643"):
            assert asking(app).get("/healthz", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:8643", "127.0.0.1.evil.example", ""):
            problem_of(asking(app).get("/healthz", headers={"Host": host}), 421, "wrong-host")

    def test_without_tokens_pages_of_other_sites_give_no_orders(self, store: Store) -> None:
        """A browser sends an order without a body to any site."""
        campaign, _ = Campaigns(store).create(CampaignRequest("a", (PROBLEM,), ((DEVICE, "cuda"),)))
        http = asking(create_app(store, decide("auto", "127.0.0.1", embedded=True)))
        host = {"Host": "localhost:8643"}
        for order in ("pause", "resume", "cancel"):
            path = f"/v1/campaigns/{campaign.id}:{order}"
            for origin in ("https://evil.example", "null", "http://localhost:9000"):
                problem_of(http.post(path, headers=host | {"Origin": origin}), 403, "wrong-origin")
            assert http.post(path, headers=host | {"Origin": "http://localhost:8643"}).status_code == 200

    def test_where_tokens_are_required_an_origin_changes_nothing(self, store: Store) -> None:
        _, secret = tokens.make(store, "reader", ["read"])
        http = asking(create_app(store, AccessPolicy(tokens=True)), secret)
        body = {"problem": ASKED}
        assert http.post("/v1/explain", json=body, headers={"Origin": "https://evil.example"}).status_code == 200

    def test_asking_too_often_is_refused_with_a_time_to_wait(self, store: Store) -> None:
        http = asking(create_app(store, AccessPolicy(requests_per_second=SLOW_REFILL)))
        assert http.get("/openapi.json").status_code == 200
        refused = http.get("/openapi.json")
        problem_of(refused, 429, "too-often")
        assert int(refused.headers["retry-after"]) >= 1

    @pytest.mark.parametrize("paths", [("/healthz", "/readyz"), ("/readyz", "/healthz")])
    def test_probes_have_a_bucket_of_their_own(
        self, paths: tuple[str, str], store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(middleware, "_PROBES_PER_SECOND", SLOW_REFILL)
        http = asking(create_app(store, AccessPolicy(requests_per_second=SLOW_REFILL)))
        assert [http.get("/openapi.json").status_code for _ in range(2)] == [200, 429]
        assert [http.get(path).status_code for path in paths] == [200, 429]

    def test_callers_behind_a_trusted_proxy_have_buckets_of_their_own(self, store: Store) -> None:
        def last_status(proxies: str, client: str) -> int:
            policy = AccessPolicy(tokens=True, requests_per_second=SLOW_REFILL, proxies=networks(proxies))
            http = TestClient(create_app(store, policy), client=("10.0.0.7", 1))
            for _ in range(2):
                http.get("/v1/best", params=ASKED, headers={"X-Forwarded-For": "192.0.2.1"})
            return http.get("/v1/best", params=ASKED, headers={"X-Forwarded-For": client}).status_code

        assert last_status("10.0.0.7", "192.0.2.1") == 429
        assert last_status("10.0.0.7", "192.0.2.2") == 401
        assert last_status("", "192.0.2.2") == 429

    def test_callers_without_a_token_learn_nothing_of_a_body(self, store: Store) -> None:
        http = asking(create_app(store, AccessPolicy(tokens=True)), "wrong")
        for body in (b"{", b"[" * 1000, b'{"name": 1}'):
            problem_of(http.post("/v1/campaigns", content=body), 401, "token-needed")

    def test_trying_tokens_does_not_slow_down_a_good_one(self, store: Store) -> None:
        _, secret = tokens.make(store, "reader", ["read"])
        app = create_app(store, AccessPolicy(tokens=True, requests_per_second=SLOW_REFILL))
        statuses = [asking(app, "guess").get("/v1/best", params=ASKED).status_code for _ in range(2)]
        assert statuses == [401, 429]
        assert asking(app, secret).get("/v1/best", params=ASKED).status_code == 200

    def test_a_body_is_counted_whatever_its_headers_say(self, store: Store) -> None:
        def chunks() -> Iterator[bytes]:
            for _ in range(MOST_BODY_BYTES // 65536 + 2):
                yield b" " * 65536

        http = asking(create_app(store))
        headers = {"Content-Type": "application/json"}
        problem_of(http.post("/v1/explain", content=chunks(), headers=headers), 413, "body-too-large")

    @pytest.mark.parametrize(
        ("query", "status", "kind"),
        [
            ("m=1&n=1&k=1&m=2", 422, "malformed-request"), ("m=1&n=1&k=1&%6d=2", 422, "malformed-request"),
            ("x=" + "y" * 9000, 414, "query-too-long"),
        ],
    )
    def test_queries_are_checked(self, store: Store, query: str, status: int, kind: str) -> None:
        problem_of(asking(create_app(store)).get(f"/v1/best?{query}"), status, kind)

    def test_a_compressed_body_is_refused_as_such(self, store: Store) -> None:
        http, body = asking(create_app(store)), json.dumps({"problem": ASKED}).encode()
        headers = {"Content-Type": "application/json", "Content-Encoding": "GZIP"}
        refused = problem_of(http.post("/v1/explain", content=gzip.compress(body), headers=headers), 415, "not-json")
        assert "Content-Encoding 'gzip'" in refused["detail"]
        plain = headers | {"Content-Encoding": "identity"}
        assert http.post("/v1/explain", content=body, headers=plain).status_code == 200

    @pytest.mark.parametrize(("method", "path"), [
        ("GET", "/v1/fleet?device=L40S"), ("GET", f"/v1/devices/{DEVICE}?policy=burst"), ("GET", "/v1/service?device"),
        ("POST", "/v1/workers:revoke?since=2026-11-20T00:00:00Z"), ("POST", "/v1/campaigns:estimate?%20=1"),
    ])  # fmt: skip
    def test_a_query_that_a_path_would_ignore_is_refused(self, store: Store, method: str, path: str) -> None:
        http = asking(create_app(store))
        body = {"worker": "x"} if method == "POST" else None
        refused = problem_of(http.request(method, path, json=body), 422, "malformed-request")
        assert refused["detail"].endswith(": no such field: this path takes no query; see /openapi.json for the schema")
        assert http.get("/metrics?format=text").status_code == http.get("/healthz?at=1").status_code == 200

    def test_every_answer_keeps_browsers_strict(self, store: Store) -> None:
        http = asking(create_app(store))
        for response in (http.get("/healthz"), http.get("/nowhere"), http.get("/v1/best")):
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert response.headers["cache-control"] == "no-store"

    def test_a_defect_is_a_problem_too_and_its_traceback_is_logged(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = create_app(store)

        @app.get("/defect")
        def defect() -> None:
            raise RuntimeError("planted")

        document = problem_of(asking(app).get("/defect"), 500, "internal")
        assert "planted" not in json.dumps(document)
        record = next(record for record in caplog.records if record.exc_info)
        line = json.loads(JsonFormatter().format(record))
        assert line["request_id"] == document["instance"]
        assert "planted" in line["traceback"]

    def test_requests_are_logged_without_their_secrets(self, store: Store) -> None:
        _, secret = tokens.make(store, "reader", ["read"])
        stream = io.StringIO()
        app = create_app(store, AccessPolicy(tokens=True), log=stream)
        asking(app, secret).get("/v1/best", params=ASKED)
        asking(app).get("/no%22where%0A")
        app.state.request_log.close()
        first, second = (json.loads(line) for line in stream.getvalue().splitlines())
        assert (first["path"], first["status"], first["caller"]) == ("/v1/best", 200, "reader")
        assert (second["path"], second["status"], second["caller"]) == ('/no"where\n', 404, None)
        assert secret not in stream.getvalue()


class TestAnswersFromMemory:
    """Requests that a server may answer without the event loop, and those that it may not."""

    @pytest.fixture
    def secret(self, store: Store) -> str:
        keep_best(store)
        return tokens.make(store, "reader", ["read"])[1]

    @pytest.fixture
    def app(self, store: Store, secret: str) -> Iterator[FastAPI]:
        log = io.StringIO()
        app = create_app(store, AccessPolicy(tokens=True, hosts=frozenset({"here"}), requests_per_second=1000.0), log)
        app.state.written = log
        app.state.follower.poll()
        yield app
        app.state.request_log.close()

    def scope(self, secret: str, **changes: object) -> Scope:
        headers = [(b"host", b"here"), (b"authorization", f"Bearer {secret}".encode()), (b"x-request-id", b"mine")]
        return {"type": "http", "method": "GET", "path": "/v1/best", "query_string": urlencode(ASKED).encode(),
                "headers": headers, "client": ("127.0.0.1", 5), **changes}  # fmt: skip

    def test_it_is_the_event_loops_answer(self, app: FastAPI, secret: str) -> None:
        sent: list[Message] = []
        assert app.state.answer_now(self.scope(secret), sent.append)
        http = TestClient(app, "http://here", headers={"Authorization": f"Bearer {secret}", "X-Request-Id": "mine"})
        same = http.get("/v1/best", params=ASKED)
        start, body = sent
        assert (start["status"], body["body"]) == (same.status_code, same.content)
        assert {name.decode(): value.decode() for name, value in start["headers"]} == dict(same.headers)
        app.state.request_log.write()
        lines = [json.loads(line) for line in app.state.written.getvalue().splitlines()]
        assert [{**line, "at": 0, "ms": 0, "address": ""} for line in lines[:1]] == [
            {**line, "at": 0, "ms": 0, "address": ""} for line in lines[1:]
        ]
        counted = {"route": "/v1/best", "method": "GET", "status": "200"}
        assert app.state.metrics.registry.get_sample_value("gemmtune_http_requests_total", counted) == 2
        assert app.state.metrics.registry.get_sample_value("gemmtune_answers_total", {"source": "measured"}) == 2

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "POST"}, {"path": "/v1/best/history"}, {"query_string": b"m=1&n=2&k=3"}, {"query_string": b"m"},
            {"headers": [(b"host", b"here")]}, {"headers": [(b"host", b"here"), (b"authorization", b"Bearer wrong")]},
        ],
    )  # fmt: skip
    def test_others_are_left_alone(self, app: FastAPI, secret: str, changes: dict[str, object]) -> None:
        self.is_left_alone(app, self.scope(secret, **changes))

    def test_a_wrong_host_and_a_repeated_header_are_left_alone(self, app: FastAPI, secret: str) -> None:
        here, known, _ = self.scope(secret)["headers"]
        self.is_left_alone(app, self.scope(secret, headers=[(b"host", b"elsewhere"), known]))
        self.is_left_alone(app, self.scope(secret, headers=[here, here, known]))

    def test_a_token_that_may_not_read_is_left_alone(self, app: FastAPI, store: Store) -> None:
        _, secret = tokens.make(store, "node-7", ["work"])
        app.state.follower.poll()
        self.is_left_alone(app, self.scope(secret))

    def test_a_caller_that_hurries_is_left_to_its_turns(self, app: FastAPI, secret: str) -> None:
        scope = self.scope(secret)
        answered = [app.state.answer_now(scope, lambda message: None) for _ in range(200)]
        assert answered[:60] == [True] * 60
        assert not all(answered)

    def test_an_answer_that_is_not_rendered_is_left_to_the_reader(self, app: FastAPI, secret: str) -> None:
        (device,) = app.state.follower.snapshot.devices.values()
        device.held = {key: best.kind for key, best in device.held.items()}
        self.is_left_alone(app, self.scope(secret))

    def is_left_alone(self, app: FastAPI, scope: Scope) -> None:
        sent: list[Message] = []
        assert not app.state.answer_now(scope, sent.append)
        app.state.request_log.write()
        assert (sent, app.state.written.getvalue()) == ([], "")
        assert app.state.metrics.registry.get_sample_value("gemmtune_answers_total", {"source": "measured"}) == 0


class TestRates:
    def test_a_caller_gets_its_share_and_a_burst(self) -> None:
        now = [0.0]
        rates = RateLimiter(10, clock=lambda: now[0])
        assert sum(rates.wait_seconds("a") == 0 for _ in range(50)) == 20
        assert rates.wait_seconds("b") == 0
        now[0] += 1
        assert sum(rates.wait_seconds("a") == 0 for _ in range(50)) == 10

    def test_the_wait_that_is_told_is_enough(self) -> None:
        now = [0.0]
        rates = RateLimiter(0.5, clock=lambda: now[0])
        assert rates.wait_seconds("a") == 0
        now[0] += rates.wait_seconds("a") + 1e-9
        assert rates.wait_seconds("a") == 0

    def test_memory_is_bounded(self) -> None:
        rates = RateLimiter(1)
        for place in range(30_000):
            rates.wait_seconds(f"address {place}")
        assert len(rates._buckets) <= 10_000


@pytest.mark.parametrize("path", ["/v1/campaigns/", "/problems/"])
def test_nobody_is_sent_to_another_address(store: Store, path: str) -> None:
    """Behind a TLS proxy the address of a redirect would be plain HTTP, and its host whatever the client says."""
    with TestClient(create_app(store, AccessPolicy(tokens=True)), follow_redirects=False) as http:
        assert http.get(path, headers={"Host": "elsewhere.example"}).status_code == 404
