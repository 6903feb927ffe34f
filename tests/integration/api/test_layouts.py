"""Layouts over HTTP: what the command prints, drawings, and refusals."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from gemmtune import Client
from gemmtune.command import app
from tests.recorded_store import HOSTILE

KINDS = ("swizzle", "boxes", "banks", "fragment", "scales", "descriptor", "instruction")


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_is_what_the_command_prints(http: TestClient, kind: str) -> None:
    answered = http.get(f"/v1/layouts/{kind}", params={"rows": 64} if kind == "boxes" else {})
    words = {"fragment": ["wgmma.m64n64k16"], "boxes": ["--rows", "64"]}.get(kind, [])
    run = CliRunner().invoke(app, ["layout", kind, *words, "--json"], catch_exceptions=False)
    assert answered.json() == json.loads(run.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_is_drawn(http: TestClient, kind: str) -> None:
    drawn = http.get(f"/v1/layouts/{kind}", params={"format": "svg"})
    assert drawn.headers["content-type"] == "image/svg+xml"
    root = ElementTree.fromstring(drawn.text)
    fills = {shape.get("fill") for shape in root.iter() if shape.get("fill")}
    assert len(fills) > 1
    with Client("http://localhost", transport=http._transport) as client:
        assert client.layout_drawing(kind) == drawn.text
    assert {shape.get("class") for shape in root.iter()} >= {"paper", "ink"}


@pytest.mark.parametrize(
    ("kind", "params"),
    [("swizzle", {"mode": HOSTILE}), ("swizzle", {"rows": 10**9}), ("swizzle", {"cols": 7}),
     ("boxes", {"dtype": "bf17"}), ("banks", {"addresses": "1,,2"}), ("banks", {"addresses": "3", "width": 16}),
     ("banks", {"pattern": HOSTILE}), ("fragment", {"instruction": HOSTILE}), ("fragment", {"thread": 1000}),
     ("scales", {"rows": 7}), ("descriptor", {"word": "0xg"}), ("descriptor", {"start": 1}),
     ("descriptor", {"word": "0645"}),
     ("descriptor", {"word": "18446744073709551616"}), ("instruction", {"kind": HOSTILE}),
     ("instruction", {"m": 3}), ("instruction", {"word": "0xffffffffff"})],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(http: TestClient, kind: str, params: dict[str, Any]) -> None:
    refused = http.get(f"/v1/layouts/{kind}", params=params)
    assert refused.status_code == 422, refused.text
    assert len(refused.json()["detail"]) > 20
