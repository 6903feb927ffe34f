"""Campaigns, workers and rounds over HTTP: responses, refusals, and that refused requests store nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import ceil
from typing import Any

import httpx2
import pytest
from anyio import from_thread, to_thread
from fastapi.testclient import TestClient

from api import campaigns
from api.patterns import RULES
from tests.fleet import PROBLEMS, Fleet, facts, provenance, time_of
from tests.support import FAMILY, measured
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import measurement_document
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import TIMING
from tuner.fleet.campaigns.workers import Workers

BODY: dict[str, Any] = {
    "name": "nightly",
    "problems": [{"m": 64, "n": 256, "k": 256}, {"m": 128, "n": 256, "k": 256, "dtype": "fp16"}],
    "ladders": ["m=256..1024:x2 n=256 k=256"],
    "devices": [{"name": "NVIDIA H200"}],
    "budget": {"candidates": 20, "rounds": 11},
}


def refused(response: httpx2.Response, status: int, kind: str) -> str:
    document = response.json()
    assert (response.status_code, document["type"]) == (status, f"/problems/{kind}"), document
    assert response.headers["content-type"] == "application/problem+json"
    return str(document["detail"])


def changed(**change: Any) -> dict[str, Any]:  # noqa: ANN401
    return BODY | change


def patterns_in(described: object) -> Iterator[str]:
    if isinstance(described, dict):
        if isinstance(pattern := described.get("pattern"), str):
            yield pattern
        described = [*described.values()]
    for each in described if isinstance(described, list) else ():
        yield from patterns_in(each)


class TestCampaigns:
    def test_one_is_made_and_told(self, http: TestClient) -> None:
        made = http.post("/v1/campaigns", json=BODY)
        assert (made.status_code, made.headers["location"]) == (201, "/v1/campaigns/1")
        progress = http.get("/v1/campaigns/1").json()
        assert progress["problems"] == {"waiting": 5, "open": 0, "done": 0, "parked": 0, "skipped": 0}
        assert (progress["most_candidates"], progress["workers"]) == (100, 0)
        listed = http.get("/v1/campaigns").json()["items"]
        assert [entry["name"] for entry in listed] == ["nightly"]
        assert http.get("/v1/campaigns/1/summary").json()["gain"] is None

    def test_the_same_key_makes_it_once_and_another_body_is_refused(self, http: TestClient, store: Store) -> None:
        key = {"Idempotency-Key": "night-1"}
        first = http.post("/v1/campaigns", json=BODY, headers=key)
        again = http.post("/v1/campaigns", json=BODY, headers=key)
        assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
        before = store.counts()
        other = http.post("/v1/campaigns", json=changed(name="other"), headers=key)
        assert "use a new key" in refused(other, 422, "idempotency-key-reused")
        refused(http.post("/v1/campaigns", json=BODY, headers={"Idempotency-Key": "x" * 201}), 422, "malformed-request")
        assert store.counts() == before

    @pytest.mark.parametrize(
        ("change", "kind", "said"),
        [
            ({"name": ""}, "malformed-request", "name"),
            ({"nome": "x"}, "malformed-request", "nome"),
            ({"problems": [], "ladders": []}, "bad-input", "no problem"),
            ({"problems": [{"m": 0, "n": 1, "k": 1}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [{"m": True, "n": 1, "k": 1}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [{"m": 1, "n": 1, "k": 1, "dtype": "bf17"}]}, "bad-input", "bf17"),
            ({"problems": [{"m": 1, "n": 1, "k": 1, "colour": "red"}]}, "malformed-request", "colour"),
            ({"ladders": ["m=8..1 n=1 k=1"]}, "bad-input", "does not increase"),
            ({"ladders": ["m=1..200 n=1..200 k=64"]}, "bad-input", "40,000"),
            ({"devices": []}, "malformed-request", "devices"),
            ({"devices": [{"name": "TPU v5"}]}, "bad-campaign", "TPU v5"),
            ({"devices": [{"name": "NVIDIA H200", "kind": "virtual"}]}, "malformed-request", "kind"),
            ({"devices": [{"name": "NVIDIA H200"}] * 2}, "bad-input", "twice"),
            ({"budget": {"candidates": 0}}, "malformed-request", "candidates"),
            ({"budget": {"target": 1.5}}, "malformed-request", "target"),
            ({"budget": {"gpu_seconds": -1}}, "malformed-request", "gpu_seconds"),
            ({"budget": {"gpu_seconds": True}}, "malformed-request", "valid"),
            ({"budget": {"candidates": True}}, "malformed-request", "valid"),
            ({"priority": 101}, "malformed-request", "priority"),
            ({"priority": "1_0"}, "malformed-request", "priority"),
            ({"priority": True}, "malformed-request", "priority"),
        ],
    )
    def test_what_is_no_campaign_is_refused(
        self, http: TestClient, store: Store, change: dict[str, Any], kind: str, said: str
    ) -> None:
        assert said in refused(http.post("/v1/campaigns", json=changed(**change)), 422, kind)
        assert store.counts()["campaign"] == store.counts()["problem"] == 0

    def test_what_a_text_may_hold_is_said_in_words(self, http: TestClient) -> None:
        worker = {"name": "node\n7", "facts": asdict(facts())}
        for path, body in (("campaigns", changed(name="a\tb")), ("workers", worker)):
            said = refused(http.post(f"/v1/{path}", json=body), 422, "malformed-request")
            assert said.startswith("/name: give text without control characters, such as tabs and line breaks, not ")
        assert set(patterns_in(http.get("/openapi.json").json())) == set(RULES)

    def test_it_is_paused_resumed_and_cancelled_for_good(self, http: TestClient) -> None:
        http.post("/v1/campaigns", json=BODY)
        for change, status in (
            ("pause", "paused"),
            ("pause", "paused"),
            ("resume", "running"),
            ("cancel", "cancelled"),
        ):
            assert http.post(f"/v1/campaigns/1:{change}").json()["status"] == status
        assert "resumed" in refused(http.post("/v1/campaigns/1:resume"), 409, "campaign-ended")

    def test_what_is_not_there_is_404(self, http: TestClient) -> None:
        for path in (
            "/v1/campaigns/7",
            "/v1/campaigns/7/summary",
            "/v1/campaigns/7/problems",
            "/v1/campaigns/7/events",
        ):
            refused(http.get(path), 404, "unknown-campaign")
        refused(http.post("/v1/campaigns/7:pause"), 404, "unknown-campaign")
        refused(http.get("/v1/campaigns/99999999999"), 422, "malformed-request")
        refused(http.get("/v1/campaigns/x"), 404, "no-such-path")

    def test_an_estimate_makes_nothing(self, http: TestClient, store: Store) -> None:
        said = http.post("/v1/campaigns:estimate", json=BODY).json()
        assert (said["problems"], said["most_candidates"], said["rate_source"]) == (5, 100, "assumed")
        assert (said["seconds"], said["workers"]) == (None, 0)
        assert said["gpu_seconds_low"] < said["gpu_seconds"] < said["gpu_seconds_high"]
        assert store.counts()["campaign"] == 0
        assert (said["untunable"], said["looked_at"]) == ([], 5)

    def test_an_estimate_uses_measured_rates_and_live_workers(self, http: TestClient, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign()
        hand = fleet.hand()
        while task := hand.claim():
            hand.work(task)
        said = http.post("/v1/campaigns:estimate", json=BODY).json()
        assert (said["rate_source"], said["workers"]) == ("measured", 1)
        assert said["seconds"] == said["gpu_seconds"]
        assert said["gpu_seconds_low"] <= said["gpu_seconds"] <= said["gpu_seconds_high"]

    def test_an_estimate_gives_a_problem_to_one_worker_at_a_time(self, http: TestClient, store: Store) -> None:
        fleet = Fleet(store)
        for number in range(3):
            fleet.hand(number)
        one = BODY | {"problems": [{"m": 64, "n": 4096, "k": 4096}], "ladders": []}
        said = http.post("/v1/campaigns:estimate", json=one).json()
        assert (said["workers"], said["seconds"]) == (3, said["gpu_seconds"])
        said = http.post("/v1/campaigns:estimate", json=BODY).json()
        assert (said["workers"], said["seconds"]) == (3, said["gpu_seconds"] / 3)

    def test_an_estimate_looks_at_every_device(self, http: TestClient, store: Store) -> None:
        Fleet(store).hand()
        devices = [*BODY["devices"], {"name": "NVIDIA GeForce RTX 3090"}]
        both = BODY | {"devices": devices, "ladders": ["m=64 n=4096 k=4096 dtype=bf16,fp8_e4m3"], "problems": []}
        said = http.post("/v1/campaigns:estimate", json=both).json()
        (entry,) = said["untunable"]
        assert entry["problem"].startswith("gemm:fp8_e4m3")
        assert entry["rules"].endswith(" on NVIDIA GeForce RTX 3090")
        assert said["seconds"] is None, "no worker takes the second device's rounds"

    @pytest.mark.parametrize(
        ("path", "where", "name"),
        [("/v1/campaigns:estimate", campaigns, "estimate"), ("/v1/campaigns", Campaigns, "create")],
    )
    def test_what_takes_seconds_keeps_no_thread_from_other_requests(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, where: object, name: str
    ) -> None:
        call, taken = getattr(where, name), list[int]()

        def seen(*given: object) -> object:
            taken.append(from_thread.run_sync(lambda: to_thread.current_default_thread_limiter().borrowed_tokens))
            return call(*given)

        monkeypatch.setattr(where, name, seen)
        assert http.post(path, json=BODY).is_success
        assert taken == [0]

    def test_pages_hold_every_problem_once_and_cursors_belong_to_their_query(self, http: TestClient) -> None:
        http.post("/v1/campaigns", json=BODY)
        seen, params = [], {"limit": "2"}
        while True:
            page = http.get("/v1/campaigns/1/problems", params=params).json()
            seen += [entry["problem"]["m"] for entry in page["items"]]
            if page["next"] is None:
                break
            params = {"limit": "2", "cursor": page["next"]}
        assert seen == [64, 128, 256, 512, 1024]
        cursor = http.get("/v1/campaigns/1/problems", params={"limit": "2"}).json()["next"]
        other = http.get("/v1/campaigns/1/problems", params={"cursor": cursor, "status": "done"})
        refused(other, 400, "bad-cursor")
        refused(http.get("/v1/campaigns/1/problems?status=fine"), 422, "malformed-request")


@pytest.fixture
def fleet(store: Store) -> Fleet:
    fleet = Fleet(store)
    fleet.campaign(PROBLEMS[:2])
    return fleet


class TestWorkersAndRounds:
    def register(self, http: TestClient, **change: Any) -> httpx2.Response:  # noqa: ANN401
        return http.post("/v1/workers", json={"name": "node-1", "facts": asdict(facts()) | change})

    def test_a_worker_registers_on_no_thread_of_other_requests(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        register, taken = Workers.register, list[int]()

        def seen(*given: Any) -> Any:  # noqa: ANN401
            taken.append(from_thread.run_sync(lambda: to_thread.current_default_thread_limiter().borrowed_tokens))
            return register(*given)

        monkeypatch.setattr(Workers, "register", seen)
        assert self.register(http).status_code == 201
        assert taken == [0]

    def claimed(self, http: TestClient) -> dict[str, Any]:
        worker = self.register(http).json()["worker_id"]
        task = dict(http.post(f"/v1/workers/{worker}:claim").json())
        begin = {"lease": task["lease"], "provenance": asdict(provenance())}
        assert http.post(f"/v1/rounds/{task['round_id']}:begin", json=begin).json()["tried"] == []
        return task

    def finish(self, http: TestClient, task: dict[str, Any], **change: Any) -> httpx2.Response:  # noqa: ANN401
        taken = [measurement_document(measured(config, time_of(config), PROBLEMS[0])) for config in
                 (FAMILY.config({"tile_n": n}) for n in (64, 128))]  # fmt: skip
        body = {"lease": task["lease"], "problem_key": task["problem_key"],
                "measurements": taken, "provenance": asdict(provenance()), "busy_seconds": 0.1}  # fmt: skip
        return http.post(f"/v1/rounds/{task['round_id']}:finish", json=body | change)

    def test_a_worker_registers_beats_works_and_leaves(self, http: TestClient, fleet: Fleet, store: Store) -> None:
        task = self.claimed(http)
        beat = http.post("/v1/workers/1:heartbeat", json={"round_id": task["round_id"]})
        assert beat.json() == {"stop": False, "drain": False}
        assert http.get("/v1/workers").json()["items"][0]["round_id"] == task["round_id"]
        keys = [FAMILY.config({"tile_n": n}).key for n in (64, 128)]
        said = {"lease": task["lease"], "stage": "screen", "configs": keys}
        assert http.post(f"/v1/rounds/{task['round_id']}:announce", json=said).status_code == 204
        assert [self.finish(http, task).status_code for _ in range(2)] == [204, 204]
        assert store.counts()["measurement"] == 2
        assert http.post("/v1/workers/1:leave").status_code == 204
        assert http.get("/v1/workers").json()["items"] == []
        assert http.get("/v1/workers?gone=true").json()["items"][0]["gone_because"] == "left"

    def test_nothing_to_do_is_204(self, http: TestClient) -> None:
        worker = self.register(http).json()["worker_id"]
        assert http.post(f"/v1/workers/{worker}:claim").status_code == 204

    @pytest.mark.parametrize(
        ("change", "status", "kind", "said"),
        [
            ({"arch": "sm_90"}, 422, "bad-input", "sm_90a"),
            ({"arch": "sm_100a"}, 422, "bad-input", "sm_100a"),
            ({"name": "NVIDIA B200"}, 422, "bad-worker", "sm_100a"),
            ({"sm_count": 500}, 422, "bad-worker", "132 SMs"),
            ({"kind": "virtual"}, 422, "malformed-request", "kind"),
            ({"uuid": ""}, 422, "malformed-request", "uuid"),
            ({"colour": "red"}, 422, "malformed-request", "colour"),
        ],
    )
    def test_a_device_that_can_not_be_is_refused(
        self, http: TestClient, store: Store, change: dict[str, Any], status: int, kind: str, said: str
    ) -> None:
        assert said in refused(self.register(http, **change), status, kind)
        assert store.counts()["worker"] == 0

    def test_a_gpu_that_has_a_worker_is_refused_to_another(self, http: TestClient) -> None:
        self.register(http)
        refusal = self.register(http)
        assert "a worker that died frees it" in refused(refusal, 409, "slot-taken")
        assert refusal.headers["retry-after"] == str(ceil(TIMING.silence_seconds))

    def test_who_is_gone_is_told_to_register_again(self, http: TestClient) -> None:
        worker = self.register(http).json()["worker_id"]
        assert http.post(f"/v1/workers/{worker}:leave").status_code == 204
        for call in ("heartbeat", "claim", "drain"):
            refused(http.post(f"/v1/workers/{worker}:{call}", json={}), 409, "worker-gone")
        assert http.post(f"/v1/workers/{worker}:leave").status_code == 204

    def test_a_worker_that_never_was_is_404(self, http: TestClient) -> None:
        for call in ("heartbeat", "claim", "drain", "leave"):
            refused(http.post(f"/v1/workers/5:{call}", json={}), 404, "unknown-worker")

    @pytest.mark.parametrize(
        ("change", "status", "kind", "said"),
        [
            ({"lease": "0" * 32}, 409, "lease-lost", "not yours"),
            ({"lease": "short"}, 422, "malformed-request", "lease"),
            ({"problem_key": PROBLEMS[1].key}, 422, "result-refused", "the round is of"),
            ({"provenance": asdict(provenance(9))}, 422, "result-refused", "GPU-9"),
            ({"provenance": asdict(provenance()) | {"driver": "1"}}, 422, "result-refused", "provenance"),
            ({"provenance": None}, 422, "result-refused", "provenance"),
            ({"busy_seconds": -1}, 422, "malformed-request", "busy_seconds"),
            ({"measurements": [{}]}, 422, "malformed-request", "/measurements/0"),
            ({"measurements": [{}] * 3_000}, 422, "malformed-request", "measurements"),
            ({"colour": "red"}, 422, "malformed-request", "colour"),
        ],
    )
    def test_a_report_that_can_not_be_is_refused_whole(
        self, http: TestClient, fleet: Fleet, store: Store, change: dict[str, Any], status: int, kind: str, said: str
    ) -> None:
        task = self.claimed(http)
        assert said in refused(self.finish(http, task, **change), status, kind)
        assert store.counts()["measurement"] == 0
        assert self.finish(http, task).status_code == 204

    @pytest.mark.parametrize(
        ("change", "kind", "said"),
        [
            ({"config": "sm90_wgmma:tile_m=100"}, "result-refused", "is not a config"),
            ({"config": "nothing:x=1"}, "result-refused", "is not a config"),
            ({"config": FAMILY.config({"tile_n": 256, "stages": 16}).key}, "result-refused", "illegal"),
            ({"verification": None}, "result-refused", "can't be correct"),
            ({"samples_us": []}, "result-refused", "can't be correct"),
            ({"samples_us": [0]}, "malformed-request", "samples_us"),
            ({"samples_us": [1e-9]}, "result-refused", "roofline"),
            ({"outcome": "fine"}, "malformed-request", "outcome"),
            ({"stage": "middle"}, "malformed-request", "stage"),
            ({"build_digest": "x" * 65}, "malformed-request", "build_digest"),
            ({"detail": "x" * 5_000}, "malformed-request", "detail"),
        ],
    )
    def test_a_measurement_that_can_not_be_is_refused(
        self, http: TestClient, fleet: Fleet, store: Store, change: dict[str, Any], kind: str, said: str
    ) -> None:
        task = self.claimed(http)
        config = FAMILY.config({"tile_n": 64})
        bad = measurement_document(measured(config, time_of(config), PROBLEMS[0])) | change
        assert said in refused(self.finish(http, task, measurements=[bad]), 422, kind)
        assert store.counts()["measurement"] == 0

    def test_infinity_is_no_number_over_http(self, http: TestClient, fleet: Fleet) -> None:
        task = self.claimed(http)
        body = json.dumps({"lease": task["lease"], "busy_seconds": float("inf")})
        headers = {"Content-Type": "application/json"}
        said = http.post(f"/v1/rounds/{task['round_id']}:finish", content=body, headers=headers)
        assert "busy_seconds: Input should be a finite number" in refused(said, 422, "malformed-request")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [({}, 422, "malformed-request"), ({"worker": "a", "token": "b"}, 422, "malformed-request"),
     ({"worker": "a"}, 404, "unknown-worker"), ({"token": "b"}, 404, "unknown-worker")],
    ids=["neither", "both", "worker", "token"],
)  # fmt: skip
def test_a_revocation_names_one_of_the_two_and_somebody(
    http: TestClient, body: dict[str, str], status: int, kind: str
) -> None:
    refused(http.post("/v1/workers:revoke", json=body), status, kind)


def test_every_answer_of_these_endpoints_is_described(http: TestClient) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    ours = {
        path: item for path, item in paths.items() if path.startswith(("/v1/campaigns", "/v1/workers", "/v1/rounds"))
    }
    assert len(ours) >= 17
    for item in ours.values():
        for operation in item.values():
            assert {"401", "403", "422", "429", "503"} <= set(operation["responses"])
    # A key that another body used is 422, and nothing else of a new campaign can be in conflict.
    assert "409" not in ours["/v1/campaigns"]["post"]["responses"]


def test_a_refused_body_is_told_in_the_services_words(http: TestClient) -> None:
    nothing = refused(http.post("/v1/workers:revoke"), 422, "malformed-request")
    assert nothing.startswith("/: the body is missing: send a JSON object; ")
    neither = refused(http.post("/v1/workers:revoke", json={}), 422, "malformed-request")
    assert neither.startswith("/: give either a worker or a token, whose reports are to be revoked; ")
