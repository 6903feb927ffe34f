"""The views over HTTP, on a store that was filled from recordings."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from api import importance, views
from gemmtune import Client
from tests.integration.api.asking import problem_of
from tests.integration.api.views.columns import column
from tests.recorded_store import DEVICE, HOSTILE, NAMES, OTHER_DEVICE, PATIENT, Filled, recording
from tests.support import study_key
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest
from tuner.views import bests, failures, funnel, spaces
from tuner.views.measurements import MeasurementColumns


class TestStudies:
    def test_a_study_names_its_winner_and_the_rule(self, http: TestClient, filled: Filled) -> None:
        params = {"problem": filled.problems[1].key, "device": DEVICE}
        (found,) = http.get("/v1/studies", params=params).json()["items"]
        assert (found["measured"], found["correct"]) == (60, 54)
        assert sum(found["failed"].values()) == 6
        body = http.get(f"/v1/studies/{found['id']}").json()
        finals = [one for one, _ in recording(NAMES[1]).measurements if one.stage == "final"]
        assert len(body["finals"]) == len(finals)
        served = [final for final in body["finals"] if final["served"]]
        (pick,) = body["picks"]
        assert [final["measurement_id"] for final in served] == [pick["measurement_id"]]
        assert served[0]["tied"]
        assert pick["sentence"]
        problem_of(http.get("/v1/studies/999"), 404, "unknown-study")

    def test_the_newest_comes_first(self, http: TestClient, filled: Filled) -> None:
        params = {"problem": filled.problems[0].key, "device": DEVICE, "limit": 1}
        first = http.get("/v1/studies", params=params).json()
        second = http.get("/v1/studies", params=params | {"cursor": first["next"]}).json()
        assert first["items"][0]["id"] > second["items"][0]["id"]
        assert second["next"] is None

    def test_its_outlook_is_kept_until_more_is_tried(self, http: TestClient, filled: Filled) -> None:
        found = http.get("/v1/studies/2/outlook").json()
        assert found["tried"] == 60 < found["pool"]
        assert 0 <= found["gain"] < 1
        assert 0 <= found["chance"] <= 1
        problem_of(http.get("/v1/studies/9999/outlook"), 404, "unknown-study")


class TestLadders:
    def test_a_weight_has_its_measured_rungs(self, http: TestClient) -> None:
        weight = http.get("/v1/weights", params={"device": DEVICE}).json()["items"][0]
        assert weight["ms"] == [16, 128, 2048]
        asked = {"n": weight["n"], "k": weight["k"], "device": DEVICE, "ms": "16,128,512,2048"}
        body = http.get("/v1/ladder", params=asked).json()
        assert [rung["source"] for rung in body["rungs"]] == ["stale", "stale", "predicted", "measured"]
        for wrong in ("0", ",".join(map(str, range(1, 258)))):
            problem_of(http.get("/v1/ladder", params=asked | {"ms": wrong}), 422, "bad-input")
        many = ",".join(str(2_147_483_647 - step) for step in range(256))
        assert len(http.get("/v1/ladder", params=asked | {"ms": many}).json()["rungs"]) == 256


class TestFleet:
    def test_rounds_are_listed_newest_first(self, http: TestClient, filled: Filled) -> None:
        items = http.get("/v1/rounds", params={"campaign": filled.campaign}).json()["items"]
        assert [item["status"] for item in items] == ["running", *["failed"] * PATIENT.attempts, *["done"] * len(NAMES)]
        assert items[0]["id"] == filled.open_round.round_id
        done = http.get("/v1/rounds", params={"status": "done", "limit": 2}).json()
        rest = http.get("/v1/rounds", params={"status": "done", "limit": 2, "cursor": done["next"]}).json()
        assert [item["id"] for item in done["items"] + rest["items"]] == [6, 5, 4, 3]

    def test_campaigns_are_listed_newest_first(self, http: TestClient, store: Store) -> None:
        request = CampaignRequest("later", (recording(NAMES[0]).problem,), (("NVIDIA H20", "cuda"),))
        later, _ = Campaigns(store).create(request)
        first = http.get("/v1/campaigns", params={"order": "newest", "limit": 1}).json()
        assert [item["id"] for item in first["items"]] == [later.id]
        rest = http.get("/v1/campaigns", params={"order": "newest", "cursor": first["next"]}).json()
        assert ([item["id"] for item in rest["items"]], rest["next"]) == ([later.id - 1], None)
        problem_of(http.get("/v1/campaigns", params={"cursor": first["next"]}), 400, "bad-cursor")
        Campaigns(store).cancel(later.id)

    def test_heartbeats_carry_the_progress_of_a_round(self, http: TestClient, filled: Filled) -> None:
        beat = {"round_id": filled.open_round.round_id,
                "progress": {"stage": "screen", "tried": 12, "best_us": 9.5}}  # fmt: skip
        assert http.post(f"/v1/workers/{filled.worker}:heartbeat", json=beat).status_code == 200
        (running,) = http.get("/v1/rounds", params={"status": "running"}).json()["items"]
        assert {name: running["progress"][name] for name in beat["progress"]} == beat["progress"]
        # A round that the worker does not hold gets none.
        assert http.post(f"/v1/workers/{filled.worker}:heartbeat", json=beat | {"round_id": 1}).json()["stop"]
        assert all(item["progress"] is None for item in http.get("/v1/rounds?status=done").json()["items"])

    def test_the_fleet_counts_workers_and_waiting_problems(self, http: TestClient, filled: Filled) -> None:
        body = http.get("/v1/fleet").json()
        assert body["workers"] == {"live": 1, "draining": 1, "gone": 1}
        (device,) = body["devices"]
        assert (device["busy"], device["waiting_problems"]) == (1, 1)
        (busy,) = (item for item in body["items"] if item["round"])
        assert busy["worker"]["id"] == filled.worker
        assert busy["last_clocks"]["sm_mhz"] > 0

    def test_failures_are_grouped_by_what_they_said(self, http: TestClient) -> None:
        body = http.get("/v1/failures", params={"device": DEVICE}).json()
        assert body["total"] == 6 * len(NAMES)
        assert sum(group["count"] for group in body["groups"]) == body["total"]
        launch = next(group for group in body["groups"] if group["outcome"] == "launch")
        assert launch["message"] == "CUDA_ERROR_INVALID_VALUE: # B of shared memory"
        assert launch["example"]["command"].startswith("gemmtune tune ")
        assert f" --device '{DEVICE}' " in launch["example"]["explain"]
        assert launch["example"]["device"] == DEVICE
        assert launch["problems"] == len(NAMES)
        none = http.get("/v1/failures", params={"device": OTHER_DEVICE}).json()
        assert (none["total"], none["groups"]) == (0, [])
        correct = http.get("/v1/failures", params={"outcome": "correct"}).json()
        assert (correct["total"], correct["groups"]) == (0, [])

    def test_a_campaigns_problems_as_columns(self, http: TestClient, filled: Filled) -> None:
        path = f"/v1/campaigns/{filled.campaign}/problems"
        body, items = http.get(f"{path}:columns").json(), http.get(path).json()["items"]
        assert column(body, "id") == [item["id"] for item in items]
        assert column(body, "status") == [item["status"] for item in items]
        assert column(body, "median_us") == [item["median_us"] for item in items]
        families = [item["config_key"].partition(":")[0] for item in items]
        assert [family or "" for family in column(body, "family")] == families
        ratios = [item["versus_cublaslt_first"] for item in items]
        assert column(body, "first") == [ratio and ratio["value"] for ratio in ratios]
        problem_of(http.get("/v1/campaigns/99/problems:columns"), 404, "unknown-campaign")


def test_the_client_has_a_method_for_each_view(http: TestClient, filled: Filled) -> None:
    key, study = filled.problems[1].key, 2
    with Client("http://localhost", transport=http._transport) as client:
        square = f"m=64&n=64&k=64&device={DEVICE}"
        asked = {
            f"/v1/bests:columns?device={DEVICE}": client.best_columns("h200"),
            f"/v1/measurements:columns?problem={key}": client.measurement_columns(problem=key),
            "/v1/measurements/7": client.measurement(7), "/v1/measurements/7/versus/7": client.versus(7, 7),
            f"/v1/studies/{study}": client.study(study),
            f"/v1/studies/{study}/outlook": client.study_outlook(study),
            f"/v1/ladder?n=28672&k=4096&ms=16,128&device={DEVICE}":
                client.ladder(28672, 4096, ms="16,128", device=DEVICE),
            f"/v1/space?{square}&x=stages&y=tile_k": client.space(64, 64, 64, x="stages", y="tile_k", device=DEVICE),
            f"/v1/funnel?{square}": client.funnel(64, 64, 64, device=DEVICE), "/v1/failures": client.failures(),
            "/v1/rules/smem.capacity": client.rule("smem.capacity"), "/v1/layouts": client.layouts(),
            "/v1/layouts/swizzle?mode=64B&cols=32": client.layout("swizzle", mode="64B", cols=32),
            f"/v1/devices/{DEVICE}/drift": client.drift(DEVICE), "/v1/caller": client.caller(),
            f"/v1/campaigns/{filled.campaign}/problems:columns": client.campaign_problem_columns(filled.campaign),
        }  # fmt: skip
        for path, document in asked.items():
            assert document == http.get(path).json(), path
        for path, items in (("/v1/rules", client.rules()), (f"/v1/weights?device={DEVICE}", client.weights("h200")),
                            ("/v1/studies", [*client.studies()]), ("/v1/rounds", [*client.rounds()])):  # fmt: skip
            assert items == http.get(path).json()["items"], path
        assert client.fleet()["workers"] == http.get("/v1/fleet").json()["workers"]
        assert client.service()["devices"] == [OTHER_DEVICE, DEVICE]
        changed = client.explain_neighbours(64, 64, 64, {"stages": 4})
        assert next(knob for knob in changed["knobs"] if knob["name"] == "stages")["value"] == 4
        (hello,) = client.events(seconds=0.05)
        assert (hello["event"], hello["data"]["resumed"]) == ("hello", False)


@pytest.mark.parametrize("path", [
    f"/v1/bests:columns?device={DEVICE}", "/v1/measurements:columns", "/v1/studies/1", "/v1/studies/2/outlook",
    "/v1/rules", "/v1/failures",
    f"/v1/space?m=512&n=512&k=512&device={DEVICE}", f"/v1/weights?device={DEVICE}",
    f"/v1/ladder?n=28672&k=4096&device={DEVICE}",
    f"/v1/devices/{DEVICE}/drift", "/v1/campaigns/1/problems:columns", "/v1/layouts/swizzle?format=svg",
    f"/v1/importance?m=4096&n=4096&k=4096&device={DEVICE}",
])  # fmt: skip
def test_what_the_client_has_is_not_sent_again(http: TestClient, path: str) -> None:
    first = http.get(path)
    again = http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize(("where", "name", "path"), [
    (bests.DeviceColumns, "document", f"/v1/bests:columns?device={DEVICE}&policy=burst"),
    (MeasurementColumns, "document", "/v1/measurements:columns?after=3"),
    (spaces, "space_of", f"/v1/space?m=640&n=512&k=512&device={DEVICE}"),
    (funnel, "counts_of", f"/v1/funnel?m=640&n=512&k=512&device={DEVICE}"),
    (failures, "failures", "/v1/failures?outcome=timeout"), (views.bests, "drift", f"/v1/devices/{OTHER_DEVICE}/drift"),
    (views.ladder, "ladder", f"/v1/ladder?n=28672&k=4096&ms=7&device={DEVICE}"),
    (views.studies, "outlook", "/v1/studies/3/outlook"),
    (importance, "why", f"/v1/importance?m=16&n=28672&k=4096&device={DEVICE}"),
])  # fmt: skip
def test_what_enumerates_holds_nobody_up(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, where: object, name: str, path: str
) -> None:
    begun, go_on, found = threading.Event(), threading.Event(), getattr(where, name)

    def held(*args: object, **options: object) -> object:
        begun.set()
        go_on.wait(60)
        return found(*args, **options)

    monkeypatch.setattr(where, name, held)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(http.get, path)
        assert begun.wait(60)
        assert http.get("/v1/caller").status_code == 200
        assert not asked.done()
        go_on.set()
        assert asked.result().status_code == 200


def test_drift_says_what_a_new_driver_changed(http: TestClient) -> None:
    body = http.get(f"/v1/devices/{DEVICE}/drift").json()
    assert [program["driver"] for program in body["programs"]] == ["580.159.04", "590.10.01"]
    assert [program["bests"] for program in body["programs"]] == [len(NAMES) - 1, 1]
    (change,) = body["changes"]
    assert (change["before"], change["after"], change["problems"]) == (0, 1, 1)
    assert change["geometric_mean"] == pytest.approx(0.97)


def test_drift_of_a_card_without_bests_is_empty_and_of_no_card_refused(http: TestClient) -> None:
    assert http.get("/v1/devices/NVIDIA A10/drift").json()["programs"] == []
    problem_of(http.get("/v1/devices/NONSENSE/drift"), 404, "unknown-device")
    assert http.get("/v1/devices/NONSENSE/drift").json()["detail"] == http.get("/v1/devices/NONSENSE").json()["detail"]


@pytest.mark.parametrize("path", ["misses", "failures", "measurements", "measurements:columns", "studies", "events"])
def test_a_list_of_a_device_that_nobody_knows_is_refused(http: TestClient, store: Store, path: str) -> None:
    rest = {"seconds": 0.05} if path == "events" else {}
    refused = problem_of(http.get(f"/v1/{path}", params=rest | {"device": "NVIDIA H201"}), 422, "bad-input")
    assert "device 'NVIDIA H201' is unknown: the nearest known ones are" in refused["detail"]
    # Nothing was measured there yet; the store has heard of the second one.
    store.begin_study(study_key(device="NVIDIA Unheard-of"))
    for device in ("NVIDIA A10", "NVIDIA Unheard-of"):
        assert http.get(f"/v1/{path}", params=rest | {"device": device}).status_code == 200


def test_a_list_of_a_campaign_that_there_is_not_is_refused(http: TestClient, filled: Filled) -> None:
    # Nothing was measured on that card, and there is no such worker.
    for path, nothing in (("rounds", {"worker": 99}), ("failures", {"device": "NVIDIA A10"}),
                          ("measurements:columns", {"device": "NVIDIA A10"})):  # fmt: skip
        refused = problem_of(http.get(f"/v1/{path}", params={"campaign": 99}), 404, "unknown-campaign")
        assert "99" in refused["detail"]
        assert http.get(f"/v1/{path}", params={"campaign": filled.campaign, **nothing}).status_code == 200


@pytest.mark.parametrize(("path", "status", "kind", "said"), [
    ("failures?family=sm90_wgma", 422, "bad-input", "family 'sm90_wgma' is unknown"),
    ("weights?device=NVIDIA%20H201", 422, "bad-input", "device 'NVIDIA H201' is unknown"),
    ("builds?arch=sm_90", 422, "bad-input", "arch 'sm_90' lacks its suffix"),
    ("measurements:columns?study=999", 404, "unknown-study", "no study 999"),
])  # fmt: skip
def test_a_list_of_what_nobody_knows_is_refused(
    http: TestClient, path: str, status: int, kind: str, said: str
) -> None:
    assert said in problem_of(http.get(f"/v1/{path}"), status, kind)["detail"]


@pytest.mark.parametrize("path", ["failures?family=gemv", "weights?device=NVIDIA%20A10", "builds?arch=sm_120a"])
def test_a_list_of_what_is_known_may_be_empty(http: TestClient, path: str) -> None:
    assert http.get(f"/v1/{path}").status_code == 200


@pytest.mark.parametrize("since", ["0.5", "1700000000", "2026-03-01", "yesterday"])
def test_a_moment_is_a_date_with_a_time_and_a_zone(http: TestClient, since: str) -> None:
    problem_of(http.get("/v1/rounds", params={"since": since}), 422, "malformed-request")
    assert http.get("/v1/rounds", params={"since": "2026-03-01T12:00:00Z"}).status_code == 200


def test_the_stream_begins_with_hello(http: TestClient) -> None:
    answered = http.get("/v1/events", params={"seconds": 0.05}, headers={"Last-Event-ID": HOSTILE})
    assert answered.headers["content-type"].startswith("text/event-stream")
    assert 'event: hello\ndata: {"resumed": false' in answered.text


def test_a_field_that_two_readers_refuse_is_named_once(http: TestClient) -> None:
    refused = http.get("/v1/events", params={"seconds": 0, "colour": "red"})
    problem_of(refused, 422, "malformed-request")
    assert [each["pointer"] for each in refused.json()["errors"]] == ["seconds", "colour"]


def test_the_service_says_what_it_is(http: TestClient) -> None:
    assert http.get("/v1/caller").json() == {"name": "local", "tokens": False,
                                             "scopes": ["read", "submit", "work", "admin"]}  # fmt: skip
    body = http.get("/v1/service").json()
    assert (body["store"], body["demo"], body["devices"]) == ("sqlite", False, [OTHER_DEVICE, DEVICE])


def test_markup_stays_text(http: TestClient) -> None:
    failed = http.get("/v1/measurements", params={"outcome": "compile"}).json()["items"]
    assert HOSTILE in failed[0]["detail"]
