"""Idempotency keys belong to who uses them, on both kinds of database."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from api.access import AccessPolicy
from api.app import create_app
from tests.fleet import PROBLEMS, Fleet
from tuner.errors import KeyReused
from tuner.evidence import tokens
from tuner.evidence.campaign_models import CampaignRow
from tuner.fleet.campaigns.campaigns import digest_of
from tuner.fleet.campaigns.records import CampaignRequest

BODY: dict[str, Any] = {"name": "a", "problems": [{"m": 64, "n": 256, "k": 256}], "devices": [{"name": "NVIDIA H200"}]}
REQUEST = CampaignRequest("run", PROBLEMS[1:2], (("NVIDIA H200", "cuda"),))


def submitter(fleet: Fleet, name: str) -> TestClient:
    _, secret = tokens.make(fleet.store, name, ["submit"])
    app = create_app(fleet.store, AccessPolicy(tokens=True))
    return TestClient(app, headers={"Authorization": f"Bearer {secret}"})


def post(http: TestClient, key: str, name: str = "a") -> tuple[int, int]:
    made = http.post("/v1/campaigns", json=BODY | {"name": name}, headers={"Idempotency-Key": key})
    return made.status_code, made.json()["id"]


def test_keys_of_two_tokens_never_meet(fleet: Fleet) -> None:
    one, other = submitter(fleet, "one"), submitter(fleet, "other")
    longest = "k" * 200
    assert post(one, longest) == (201, 1)
    assert post(other, longest, "b") == (201, 2)
    assert post(other, longest, "b") == (200, 2)
    assert post(one, longest) == (200, 1)


def test_no_key_over_http_is_that_of_a_campaign_run(fleet: Fleet) -> None:
    assert post(submitter(fleet, "one"), f"request:{digest_of(REQUEST)}") == (201, 1)
    assert fleet.campaigns.run(REQUEST).id == 2


def test_a_row_with_another_request_is_not_what_campaign_run_continues(fleet: Fleet) -> None:
    # As a service of an older version stored it.
    planted = fleet.campaign(PROBLEMS[:1])
    with fleet.store.transaction(writes=True) as session:
        session.execute(update(CampaignRow).values(idempotency_key=f"request:{digest_of(REQUEST)} after 0"))
    ran = fleet.campaigns.run(REQUEST)
    assert ran.id != planted.id
    assert fleet.campaigns.run(REQUEST) == ran


def test_a_key_that_an_older_version_stored_without_its_token_counts_for_the_same_request(fleet: Fleet) -> None:
    created, _ = fleet.campaigns.create(REQUEST, "night-1")
    assert fleet.campaigns.create(REQUEST, "night-1", owner="token 1") == (created, False)
    changed = CampaignRequest("other", REQUEST.problems, REQUEST.devices)
    assert fleet.campaigns.create(changed, "night-1", owner="token 1")[1]
    with pytest.raises(KeyReused, match="'night-1' created campaign 2"):
        fleet.campaigns.create(REQUEST, "night-1", owner="token 1")
