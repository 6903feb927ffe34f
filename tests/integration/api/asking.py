"""What the tests of the service share: a question, and how a refusal has to look."""

from __future__ import annotations

from typing import Any

import httpx2

ASKED = {"m": 256, "n": 256, "k": 256}


def problem_of(response: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of a refusal, after checks that every one must pass."""
    document: dict[str, Any] = response.json()
    assert response.status_code == status, document
    assert response.headers["content-type"] == "application/problem+json"
    assert document["type"] == f"/problems/{kind}"
    assert document["instance"] == response.headers["x-request-id"]
    assert len(document["detail"]) > 20
    return document
