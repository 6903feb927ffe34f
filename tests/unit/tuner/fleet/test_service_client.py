"""Responses that do not come from gemmtune."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from threading import Thread

import httpx2
import pytest

from gemmtune import Client, GemmtuneError
from tests.fleet import PROBLEMS, facts, provenance
from tuner.errors import FleetError, Unreachable
from tuner.fleet.agent.coordinator import HttpCoordinator
from tuner.fleet.campaigns.client import HttpCampaigns
from tuner.fleet.campaigns.records import CampaignRequest, RoundTask
from tuner.fleet.checkup import service_check
from tuner.fleet.service_client import ServiceClient


def test_another_server_at_the_address_is_one_sentence() -> None:
    page = httpx2.MockTransport(lambda request: httpx2.Response(200, text="<html>It works!</html>"))
    with (
        ServiceClient("http://127.0.0.1:8080", transport=page) as service,
        pytest.raises(FleetError, match=r"http://127\.0\.0\.1:8080 answers, but not as gemmtune does"),
    ):
        service.call("GET", "/v1/campaigns")


@pytest.mark.parametrize("body", [b"", b"<html>moved</html>"])
def test_a_proxy_that_sends_its_callers_elsewhere_is_no_answer(body: bytes) -> None:
    moved = httpx2.Response(308, content=body, headers={"location": "https://tune.example/"})
    with ServiceClient("http://127.0.0.1:8080", transport=httpx2.MockTransport(lambda request: moved)) as service:
        for call in (partial(service.call, "POST", "/v1/workers/1:leave"), lambda: list(service.lines("/v1/x"))):
            with pytest.raises(FleetError, match=r"not as gemmtune does: it redirects to https://tune\.example/; give"):
                call()


def test_a_worker_at_another_servers_address_is_told_so() -> None:
    empty = httpx2.MockTransport(lambda request: httpx2.Response(200, json={}))
    with (
        ServiceClient("http://127.0.0.1:8080", transport=empty) as service,
        pytest.raises(FleetError, match="answers, but not as gemmtune does"),
    ):
        HttpCoordinator(service).register("worker", facts())


@pytest.mark.parametrize("body", [[], "up", {}, {"worker_id": 1}, {"only": None}, {"round_id": 1, "only": []}])
def test_json_of_another_form_is_one_sentence_and_no_traceback(body: object) -> None:
    other = httpx2.MockTransport(lambda request: httpx2.Response(200, json=body))
    task = RoundTask(1, "0" * 32, "gemm", 1, 1, None, 1.0)
    with ServiceClient("http://127.0.0.1:8080", transport=other) as service:
        worker = HttpCoordinator(service)
        calls = (
            lambda: worker.register("worker", facts()), lambda: worker.beat(1, None), lambda: worker.claim(1),
            lambda: worker.begin(task, provenance()),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(FleetError, match="answers, but not as gemmtune does"):
                call()


@pytest.mark.parametrize(("status", "passes"), [(429, True), (502, True), (507, True), (522, True), (403, False)])
def test_a_server_that_fails_may_be_asked_again_and_one_that_refuses_may_not(status: int, passes: bool) -> None:
    page = httpx2.MockTransport(lambda request: httpx2.Response(status, text="<html>Oops</html>"))
    with (
        ServiceClient("http://127.0.0.1:8080", transport=page) as service,
        pytest.raises(FleetError, match=str(status)) as refused,
    ):
        service.call("GET", "/v1/campaigns")
    assert isinstance(refused.value, Unreachable) is passes


@pytest.mark.parametrize("token", ["secret\n", "secret ", " secret", "geheimß"])
def test_a_token_that_no_header_carries_is_no_silent_service(token: str) -> None:
    with pytest.raises(FleetError, match="the token has a character that no token has, such as a") as refused:
        ServiceClient("http://127.0.0.1:9", token)
    assert not isinstance(refused.value, Unreachable)


@pytest.mark.parametrize("key", ["night\n", "night ", " night", "nächtlich"])
def test_a_key_that_no_header_carries_is_no_silent_service(key: str) -> None:
    request = CampaignRequest("test", PROBLEMS[:1], (("NVIDIA H200", "cuda"),))
    with (
        ServiceClient("http://127.0.0.1:9") as service,
        pytest.raises(FleetError, match=r"Idempotency-Key is '.*', which no header carries: use printable") as refused,
    ):
        HttpCampaigns(service).create(request, key)
    assert not isinstance(refused.value, Unreachable)


def test_an_estimate_may_take_longer_than_other_calls() -> None:
    waits = list[float]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx2.Response(200, json={"untunable": [], "id": 1})

    request = CampaignRequest("test", PROBLEMS[:1], (("NVIDIA H200", "cuda"),))
    with ServiceClient("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)) as service:
        campaigns = HttpCampaigns(service)
        campaigns.create(request, None)
        campaigns.estimate(request)
    created, estimated = waits
    assert created < estimated == 60


def test_an_empty_key_is_no_missing_one() -> None:
    sent = list[httpx2.Request]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(201, json={"id": 1})

    request, transport = CampaignRequest("test", PROBLEMS[:1], (("NVIDIA H200", "cuda"),)), httpx2.MockTransport(answer)
    with ServiceClient("http://127.0.0.1:9", transport=transport) as service:
        for key in ("", None):
            HttpCampaigns(service).create(request, key)
    with Client("http://127.0.0.1:9", transport=transport) as client:
        for key in ("", None):
            client.create_campaign("test", ["NVIDIA H200"], ladders=["m=1 n=8 k=8"], idempotency_key=key)
    assert [request.headers.get("idempotency-key") for request in sent] == ["", None] * 2


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0), ("", 0.0), ("soon", 0.0), ("-3", 0.0), ("²", 0.0), ("9" * 400, 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 21 Oct 2015 07:28:00", 0.0), ("Wed, 99 Oct 2015 07:28:00", 0.0),
    ],
)  # fmt: skip
def test_the_wait_that_a_service_or_its_proxy_asks_for_is_told(status: int, said: str, seconds: float) -> None:
    busy = httpx2.Response(status, text="<html>busy</html>", headers={"Retry-After": said.encode()})
    with (
        ServiceClient("http://127.0.0.1:8080", transport=httpx2.MockTransport(lambda request: busy)) as service,
        pytest.raises(Unreachable) as refused,
    ):
        service.call("POST", "/v1/workers/1:claim")
    assert refused.value.retry_after == seconds


def test_a_wait_may_be_a_date() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    busy = httpx2.Response(503, headers={"Retry-After": until})
    with (
        ServiceClient("http://127.0.0.1:8080", transport=httpx2.MockTransport(lambda request: busy)) as service,
        pytest.raises(Unreachable) as refused,
    ):
        service.call("POST", "/v1/workers/1:claim")
    assert 0 < refused.value.retry_after <= 3600


def test_a_proxy_is_not_shown_the_token_of_a_service_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        for host, secret in (("127.0.0.1", "gt_secret"), ("localhost", "gt_secret"), ("[::1]", None)):
            with ServiceClient(f"http://{host}:9", secret) as service, pytest.raises(Unreachable, match="not answer"):
                service.call("GET", "/v1/devices")
        assert not seen
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with ServiceClient("http://tune.example") as service, pytest.raises(Unreachable, match="503"):
            service.call("GET", "/v1/devices")
        assert seen == [None]
        proxy.shutdown()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1080"), ("HTTP_PROXY", "ftp://proxy"), ("HTTPS_PROXY", "http://[::1"),
        ("SSL_CERT_FILE", "/nowhere.pem"), ("SSL_CERT_FILE", "/dev/null"),
    ],
)  # fmt: skip
def test_what_the_environment_names_and_nobody_can_use_is_one_sentence(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.lower(), raising=False)
    monkeypatch.setenv(name, value)
    said = f"{name} can't be used for tune\\.example: .+; correct or unset it"
    with pytest.raises(FleetError, match=said):
        ServiceClient("https://tune.example")
    with pytest.raises(GemmtuneError, match=said):
        Client("https://tune.example")
    check = service_check("https://tune.example", None)
    assert (check.state, check.found[: len(name)]) == ("broken", name)
    # What this machine serves itself needs neither.
    Client("http://127.0.0.1:9").close()


def test_a_password_in_the_url_is_neither_shown_nor_sent_in_place_of_the_token() -> None:
    with ServiceClient("http://ann:s3cret@127.0.0.1:9") as service, pytest.raises(Unreachable) as refused:
        service.call("GET", "/v1/devices")
    assert str(refused.value).startswith("http://127.0.0.1:9 does not answer")
    check = service_check("http://ann:s3cret@127.0.0.1:9", None)
    assert check.found.startswith("http://127.0.0.1:9 does not answer")
    for url in ("https://ann:s3cret@tune.example", "http://ann:s3cret@tune.example"):
        with pytest.raises(FleetError, match=r"^https?://tune\.example was given with a user, whose password") as told:
            ServiceClient(url, "gt_token")
        assert service_check(url, "gt_token").found == str(told.value)


def test_a_service_that_is_there_is_not_to_be_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with ServiceClient(address, seconds=0.2) as service, pytest.raises(Unreachable, match="it is there and takes"):
            service.call("GET", "/v1/devices")

        def without_tls() -> None:
            # What was sent before has no reader any more.
            while True:
                with silent.accept()[0] as caller:
                    if caller.recv(1 << 16).startswith(b"\x16"):
                        caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        return

        speaking = Thread(target=without_tls, daemon=True)
        speaking.start()
        said = r"does not answer \(\[SSL: .+\): name the authority of its certificate in SSL_CERT_FILE, or write http://"
        with ServiceClient(address.replace("http", "https")) as service, pytest.raises(Unreachable, match=said):
            service.call("GET", "/v1/devices")
        speaking.join()


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 200 OK"]
)
def test_what_breaks_off_is_not_to_be_started(said: bytes) -> None:
    def answer() -> None:
        with listening.accept()[0] as caller:
            caller.recv(1 << 16)
            caller.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        breaking = Thread(target=answer, daemon=True)
        breaking.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with ServiceClient(address) as service, pytest.raises(Unreachable, match=r"broke off \(.+\): something"):
            service.call("GET", "/v1/devices")
        breaking.join()


@pytest.mark.parametrize(
    ("url", "variables", "said"),
    [
        ("https://tune.example", {"HTTPS_PROXY": "http://127.0.0.1:9"}, "HTTPS_PROXY names a proxy: check that it is"),
        ("http://tune.example", {"ALL_PROXY": "http://127.0.0.1:9"}, "ALL_PROXY names a proxy: check that it is there"),
        ("http://tune.invalid", {"HTTPS_PROXY": "http://127.0.0.1:9"}, "no address of tune.invalid is known here"),
        ("https://tune.invalid", {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "tune.invalid"}, "no address of"),
        ("http://127.0.0.1:9", {"HTTP_PROXY": "http://127.0.0.1:9"}, "start it with `gemmtune serve`"),
    ],
)
def test_what_lies_before_a_service_is_named(
    url: str, variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with ServiceClient(url) as service, pytest.raises(Unreachable, match=said):
        service.call("GET", "/v1/devices")
    assert said in service_check(url, None).fix


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ProxyError("407 Proxy Authentication Required")

    monkeypatch.setenv("HTTPS_PROXY", "http://ann:s3cret@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    said = r"\(407 .+\): the proxy of HTTPS_PROXY refuses it: correct or unset it, or list tune\.example in NO_PROXY$"
    with (
        ServiceClient("https://tune.example", transport=httpx2.MockTransport(refuse)) as service,
        pytest.raises(Unreachable, match=said),
    ):
        service.call("GET", "/v1/devices")


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"{}", b"[]", b"7", b""])
def test_another_servers_page_is_no_service_that_is_ready(body: bytes) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        check = service_check(f"http://127.0.0.1:{server.server_port}", None)
        server.shutdown()
    assert (check.state, check.found.partition(" ")[2]) == ("broken", "answers, but not as gemmtune does")


def test_a_forked_process_has_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[tuple[str, int]] = []

    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            callers.append(self.client_address)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with ServiceClient(f"http://127.0.0.1:{server.server_port}") as service:
            parents = service._http
            for process in (os.getpid(), os.getpid(), 1, 1):
                monkeypatch.setattr(os, "getpid", lambda process=process: process)
                service.call("GET", "/v1/devices")
        parents.close()
        server.shutdown()
    assert callers[0] == callers[1] != callers[2] == callers[3]
