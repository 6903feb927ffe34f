"""Responses that do not come from gemmtune."""

from __future__ import annotations

import httpx2
import pytest

from tuner.errors import FleetError
from tuner.fleet.service_client import ServiceClient


def test_another_server_at_the_address_is_one_sentence() -> None:
    page = httpx2.MockTransport(lambda request: httpx2.Response(200, text="<html>It works!</html>"))
    with (
        ServiceClient("http://127.0.0.1:8080", transport=page) as service,
        pytest.raises(FleetError, match=r"http://127\.0\.0\.1:8080 answers, but not as gemmtune does"),
    ):
        service.call("GET", "/v1/campaigns")
