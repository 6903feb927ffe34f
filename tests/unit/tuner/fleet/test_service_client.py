"""Responses that do not come from gemmtune."""

from __future__ import annotations

from functools import partial

import httpx2
import pytest

from tests.fleet import facts, provenance
from tuner.errors import FleetError, Unreachable
from tuner.fleet.agent.coordinator import HttpCoordinator
from tuner.fleet.campaigns.records import RoundTask
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
