"""The client against a real server, and what it refuses by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.access import AccessPolicy
from api.app import create_app
from gemmtune import Client, GemmtuneError
from tests.fleet import eventually
from tests.integration.answering.test_policies import PROBLEM as POLICIES
from tests.integration.answering.test_policies import keep_policies
from tests.integration.api.asking import serving
from tests.support import DEVICE, keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    with serving(create_app(store)) as address:
        yield address


def test_the_client_asks_a_real_server(url: str, store: Store) -> None:
    best = keep_best(store)
    with Client(url) as client:
        eventually(lambda: client.best(256, 256, 256).source == "measured")
        answer = client.best(256, 256, 256)
        assert (answer.source, dict(answer.knobs), answer.family) == ("measured", best.config.knobs, "sm90_wgmma")
        assert client.explain(256, 256, 256, {"stages": 16})["legal"] is False
        content = client.table(DEVICE)
        assert content is not None
        assert client.table(DEVICE, content["content"]) is None
        assert [item["id"] for item in client.measurements()] == [best.winner.id]
        assert [item["config"]["key"] for item in client.bests(DEVICE)] == [best.config.key]
        assert DEVICE in [item["name"] for item in client.devices()]
        with pytest.raises(GemmtuneError, match="bf17") as refusal:
            client.best(1, 1, 1, dtype="bf17")
        assert (refusal.value.status, refusal.value.kind) == (422, "/problems/bad-input")


def test_a_question_may_name_a_policy_or_neighbours(url: str, store: Store) -> None:
    keep_policies(store)
    shape = (POLICIES.m, POLICIES.n, POLICIES.k)
    with Client(url) as client:
        eventually(lambda: client.best(*shape).source == "measured")
        assert client.best(*shape).time_us == 10.0
        assert client.best(*shape, policy="burst").time_us == 9.0
        early = client.best(*shape, neighbours="pdl")
        assert (early.time_us, early.knobs["pdl"], early.policy) == (9.5, 1, "chain_pdl")
        assert client.best(*shape, policy="sustained").why.startswith("nothing was measured under sustained")
        near = (POLICIES.m, POLICIES.n, POLICIES.k + 64)
        assert [(found.source, found.policy) for found in (
            client.best(*near, policy="burst"), client.best(*near, neighbours="pdl"), client.best(*near)
        )] == [("nearest", "burst"), ("nearest", "chain_pdl"), ("nearest", "chain")]  # fmt: skip
        asked = [dict(zip("mnk", shape, strict=True)), {"m": 9, "n": 9, "k": 8}]
        for words in ({"policy": "burst"}, {"neighbours": "pdl"}, {"policy": "sustained"}):
            many = client.best_many(asked, **words)
            single = client.best(*shape, **words)
            assert (many[0].time_us, many[0].policy, many[0].why) == (single.time_us, single.policy, single.why)
            assert many[1].source != "measured"
        with pytest.raises(GemmtuneError, match="under burst a product has no neighbours"):
            client.best_many(asked, policy="burst", neighbours="pdl")
        for unknown in ("calm", ""):
            with pytest.raises(GemmtuneError, match="policy"):
                client.best(*shape, policy=unknown)
            with pytest.raises(GemmtuneError, match="policy"):
                client.best_many(asked, policy=unknown)
        with pytest.raises(GemmtuneError, match="under burst a product has no neighbours") as refusal:
            client.best(*shape, policy="burst", neighbours="pdl")
        assert (refusal.value.status, refusal.value.kind) == (422, "/problems/bad-input")


def test_the_client_asks_for_many_until_all_are_answered(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemmtune.client._MOST_PROBLEMS", 3)
    monkeypatch.setattr("api.batches._COMPUTING_SECONDS", 0.05)
    problems: list[dict[str, int | str]] = [{"m": 64 * place, "n": 4096, "k": 4096} for place in range(1, 12)]
    with Client(url) as client:
        answers = client.best_many(problems)
    assert [answer.document["problem"]["m"] for answer in answers] == [problem["m"] for problem in problems]


def test_a_client_with_a_token_is_let_in(store: Store) -> None:
    _, secret = tokens.make(store, "reader", ["read"])
    with serving(create_app(store, AccessPolicy(tokens=True))) as url:
        with Client(url, token=secret) as client:
            assert client.best(256, 256, 256).source
        with Client(url) as client, pytest.raises(GemmtuneError, match="no token") as refusal:
            client.best(256, 256, 256)
        assert refusal.value.status == 401


def test_a_client_sends_no_token_in_the_clear() -> None:
    with pytest.raises(GemmtuneError, match=r"would send the token in the clear.* insecure=True"):
        Client("http://tune.example:8643", token="gt_secret")
    for url, options in (("https://tune.example", {}), ("http://tune.example", {"insecure": True})):
        Client(url, token="gt_secret", **options).close()
    Client("http://tune.example").close()


def test_a_service_that_is_not_there_is_one_sentence() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(GemmtuneError, match="gemmtune serve"):
        client.best(1, 1, 1)
