"""The client's orders and lists, against a real service."""

from __future__ import annotations

import pytest

from api.app import create_app
from gemmtune import Client, GemmtuneError
from tests.integration.api.asking import serving
from tests.support import DEVICE, PROBLEM, keep_best
from tuner.evidence.store import Store


def test_a_campaign_lives_and_ends_by_the_client(store: Store) -> None:
    keep_best(store)
    with serving(create_app(store)) as url, Client(url) as client:
        ladders = ["m=1..4:x2 n=64 k=64"]
        assert client.estimate_campaign("rows", [DEVICE], ladders=ladders)["problems"] == 3
        made = client.create_campaign("rows", [DEVICE], ladders=ladders, idempotency_key="once")
        again = client.create_campaign("rows", [DEVICE], ladders=ladders, idempotency_key="once")
        assert (again["id"], len(list(client.campaigns()))) == (made["id"], 1)
        assert len(list(client.campaign_problems(made["id"]))) == 3
        assert [event["event"] for event in client.watch_campaign(made["id"], seconds=0.2)][:1] == ["progress"]
        orders = client.pause_campaign, client.resume_campaign, client.cancel_campaign
        assert [order(made["id"])["status"] for order in orders] == ["paused", "running", "cancelled"]
        with pytest.raises(GemmtuneError, match="is cancelled") as refused:
            client.resume_campaign(made["id"])
        assert (refused.value.status, refused.value.kind) == (409, "/problems/campaign-ended")


def test_what_the_service_holds_is_read_by_the_client(store: Store) -> None:
    keep_best(store)
    with serving(create_app(store)) as url, Client(url) as client:
        assert len(list(client.best_history(PROBLEM.m, PROBLEM.n, PROBLEM.k, device=DEVICE))) == 1
        assert client.device(DEVICE)["name"] == DEVICE
        assert (list(client.workers(gone=True)), list(client.builds())) == ([], [])
        assert (client.health()["status"], client.readiness()["bests"]) == ("ok", 1)
        assert "gemmtune_http_requests_total" in client.metrics()
        for name in ("a/b", "a?b", "a#b"):
            with pytest.raises(GemmtuneError) as refused:
                client.table(name)
            assert refused.value.status == 404
