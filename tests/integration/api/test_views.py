"""The views over HTTP, on a store that was filled from recordings."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api import importance, views
from api.app import create_app
from api.views.bests import BestColumnsOut
from gemmtune import Client
from gemmtune.command import app
from space.kinds.gemm import Gemm
from tests import recorded_store
from tests.integration.api.asking import problem_of
from tests.recorded_store import DEVICE, HOSTILE, NAMES, OTHER_DEVICE, Filled, recording
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest
from tuner.views import bests, failures, funnel, measurements, spaces
from tuner.views.measurements import MeasurementColumns, Wanted


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('views')}/store.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def filled(store: Store) -> Filled:
    return recorded_store.fill(store)


@pytest.fixture(scope="module")
def http(store: Store, filled: Filled) -> Iterator[TestClient]:
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client


def column(document: dict[str, Any], name: str) -> list[Any]:
    """A column in full, coded or not."""
    found = document["columns"][name]
    return [found["values"][place] for place in found["at"]] if isinstance(found, dict) else list(found)


def knob(document: dict[str, Any], name: str) -> list[Any]:
    """The value of a knob in every row."""
    values = document["configs"]["knobs"][name]
    return [values["values"][values["at"][place]] for place in document["columns"]["config"]]


class TestBests:
    def test_rows_say_what_the_answers_say(self, http: TestClient) -> None:
        body = http.get("/v1/bests:columns", params={"device": DEVICE}).json()
        assert (body["rows"], body["total"], body["sampled"]) == (len(NAMES), len(NAMES), False)
        for row, key in enumerate(column(body, "key")):
            m, n, k = (column(body, name)[row] for name in "mnk")
            dtype = column(body, "dtype")[row]
            answer = http.get("/v1/best", params={"m": m, "n": n, "k": k, "dtype": dtype, "device": DEVICE}).json()
            evidence = answer["evidence"]
            assert answer["problem"]["key"] == key
            assert column(body, "time_us")[row] == answer["time_us"]
            assert [column(body, name)[row] for name in ("low_us", "high_us")] == answer["interval_us"]
            assert column(body, "roofline_us")[row] == answer["roofline_us"]
            assert column(body, "first")[row] == evidence["versus_cublaslt_first"]["value"]
            assert column(body, "measurement_id")[row] == evidence["measurement_id"]
            assert column(body, "tflops")[row] == pytest.approx(answer["tflops"])
            for name, value in answer["config"]["knobs"].items():
                assert knob(body, name)[row] == value

    def test_the_mean_is_of_all_rows(self, http: TestClient) -> None:
        body = http.get("/v1/bests:columns", params={"device": DEVICE}).json()
        ratios, product = column(body, "first"), 1.0
        for ratio in ratios:
            product *= ratio
        assert body["gain"]["first"]["problems"] == len(ratios)
        assert body["gain"]["first"]["geometric_mean"] == pytest.approx(product ** (1 / len(ratios)))

    def test_policies_stand_beside_each_other(self, http: TestClient) -> None:
        body = http.get("/v1/bests:columns", params={"device": OTHER_DEVICE}).json()
        sustained, chain = (body["policies"][name]["time_us"] for name in ("sustained", "chain"))
        assert all(own > between for own, between in zip(sustained, chain, strict=True))
        under = http.get("/v1/bests:columns", params={"device": OTHER_DEVICE, "policy": "chain"}).json()
        assert column(under, "time_us") == chain

    def test_a_policy_without_bests_has_empty_columns(self, http: TestClient) -> None:
        body = http.get("/v1/bests:columns", params={"device": DEVICE, "policy": "chain"}).json()
        assert BestColumnsOut.model_validate(body).rows == 0

    def test_only_changed_rows_are_asked_for(self, http: TestClient) -> None:
        whole = http.get("/v1/bests:columns", params={"device": OTHER_DEVICE}).json()
        rest = http.get("/v1/bests:columns", params={"device": OTHER_DEVICE, "after": whole["version"]}).json()
        assert BestColumnsOut.model_validate(rest).changed == []
        assert (whole["changed"], rest["rows"], rest["total"]) == (None, 0, whole["rows"])
        assert rest["policies"].keys() == whole["policies"].keys()
        assert rest["gain"] == whole["gain"]
        late = http.get("/v1/bests:columns", params={"device": OTHER_DEVICE, "after": whole["version"] + 1}).json()
        assert late == whole

    def test_they_leave_compressed(self, http: TestClient) -> None:
        answer = http.get("/v1/bests:columns", params={"device": DEVICE}, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.json()["rows"] == len(NAMES)

    def test_the_first_question_finds_them_made(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        with TestClient(create_app(store)) as client:
            # Set while the service starts; a slow machine may need longer.
            client.app.state.shown.warmed.wait(60)  # type: ignore[attr-defined]
            monkeypatch.setattr(bests.DeviceColumns, "document", None)
            assert client.get("/v1/bests:columns", params={"device": DEVICE}).json()["rows"] == len(NAMES)

    def test_an_unknown_device_is_refused_with_those_that_are_known(self, http: TestClient) -> None:
        refused = problem_of(http.get("/v1/bests:columns", params={"device": "L40S"}), 404, "unknown-device")
        assert DEVICE in refused["detail"]


class TestMeasurements:
    @pytest.mark.parametrize("wanted", [
        Wanted(), Wanted(problem=Gemm(4096, 4096, 4096).key), Wanted(device=OTHER_DEVICE), Wanted(campaign=1),
        Wanted(study=2, after=70), Wanted(device=DEVICE, limit=50), Wanted(problem="gemm:nonsense"),
    ])  # fmt: skip
    def test_a_large_store_gives_the_rows_that_a_small_one_holds(
        self, store: Store, filled: Filled, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = MeasurementColumns(store).document(wanted)
        monkeypatch.setattr(measurements, "MOST_HELD", 0)
        read = MeasurementColumns(store).document(wanted)
        names = held["columns"].keys() - {"config"}
        assert {name: str(column(held, name)) for name in names} == {name: str(column(read, name)) for name in names}
        assert knob(held, "tile_m") == knob(read, "tile_m") if held["rows"] else held["configs"]["knobs"] == {}
        assert all(held[name] == read[name] for name in ("rows", "total", "sampled", "step", "last_id"))

    def test_columns_agree_with_the_objects(self, http: TestClient, filled: Filled) -> None:
        key = filled.problems[0].key
        body = http.get("/v1/measurements:columns", params={"problem": key, "device": DEVICE}).json()
        items = http.get("/v1/measurements", params={"problem": key, "device": DEVICE, "limit": 1000}).json()["items"]
        assert [item["id"] for item in items] == column(body, "id")
        for name, field in (("outcome", "outcome"), ("median_us", "median_us"), ("stage", "stage"),
                            ("policy", "policy"), ("study_id", "study_id")):  # fmt: skip
            assert column(body, name) == [item[field] for item in items]
        for name in items[0]["config"]["knobs"]:
            assert knob(body, name) == [item["config"]["knobs"].get(name) for item in items]
        clocks = [item["clocks"] or {} for item in items]
        assert column(body, "sm_mhz") == [each.get("sm_mhz") for each in clocks]
        assert column(body, "power_w") == [each.get("power_w") for each in clocks]

    def test_only_new_rows_are_asked_for(self, http: TestClient) -> None:
        whole = http.get("/v1/measurements:columns").json()
        ids = column(whole, "id")
        rest = http.get("/v1/measurements:columns", params={"after": ids[-4]}).json()
        assert column(rest, "id") == ids[-3:]
        none = http.get("/v1/measurements:columns", params={"after": whole["last_id"]}).json()
        assert (none["rows"], none["last_id"]) == (0, whole["last_id"])

    def test_many_rows_are_sampled_and_said_to_be(self, http: TestClient) -> None:
        whole = http.get("/v1/measurements:columns").json()
        some = http.get("/v1/measurements:columns", params={"limit": 100}).json()
        assert (some["sampled"], some["total"]) == (True, whole["rows"])
        assert some["rows"] <= 100
        assert column(some, "id") == [each for each in column(whole, "id") if each % some["step"] == 0]

    def test_one_measurement_in_full(self, http: TestClient) -> None:
        item = http.get("/v1/measurements", params={"limit": 1}).json()["items"][0]
        assert http.get(f"/v1/measurements/{item['id']}").json() == item
        problem_of(http.get("/v1/measurements/999999"), 404, "unknown-measurement")

    def test_a_campaigns_measurements(self, http: TestClient, filled: Filled) -> None:
        body = http.get("/v1/measurements:columns", params={"campaign": filled.campaign}).json()
        assert set(column(body, "device_kind")) == {"recorded"}
        assert set(column(body, "problem")) == {problem.key for problem in filled.problems}


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
        assert [rung["source"] for rung in body["rungs"]] == ["measured", "measured", "predicted", "measured"]
        problem_of(http.get("/v1/ladder", params=asked | {"ms": "0"}), 422, "bad-input")


SQUARE = {"m": 4096, "n": 4096, "k": 4096, "device": DEVICE}


class TestSpaces:
    def test_what_rules_remove_adds_up(self, http: TestClient) -> None:
        (family,) = http.get("/v1/space", params=SQUARE).json()["families"]
        assert family["product"] - sum(rule["count"] for rule in family["removed"]) == family["worth"]

    def test_cells_say_why_nothing_is_in_them(self, http: TestClient) -> None:
        body = http.get("/v1/space", params=SQUARE | {"x": "tile_n", "y": "tile_m"}).json()
        cells = body["cells"]
        assert sum(map(sum, cells["worth"])) == body["families"][0]["worth"]
        known = {rule["id"]: rule["kind"] for rule in http.get("/v1/rules").json()["items"]}
        for states, rules, counts, times in zip(
            cells["state"], cells["rule"], cells["worth"], cells["expected_us"], strict=True
        ):
            for state, rule, count, expected in zip(states, rules, counts, times, strict=True):
                assert (state == "worth") == (count > 0) == (expected is not None) == (rule is None)
                assert state != "illegal" or known[rule] == "legal"

    def test_an_illegal_cell_has_no_legal_config(self, http: TestClient) -> None:
        cells = http.get("/v1/space", params=SQUARE | {"x": "stages", "y": "tile_k"}).json()["cells"]
        for row, tile_k in enumerate(cells["y_values"]):
            for place, stages in enumerate(cells["x_values"]):
                body = {"problem": {"m": 4096, "n": 4096, "k": 4096}, "knobs": {"stages": stages, "tile_k": tile_k}}
                if http.post("/v1/explain", json=body).json()["legal"]:
                    assert cells["state"][row][place] != "illegal"

    def test_two_knobs_are_needed_and_have_to_exist(self, http: TestClient) -> None:
        problem_of(http.get("/v1/space", params=SQUARE | {"x": "tile_n"}), 422, "malformed-request")
        problem_of(http.get("/v1/space", params=SQUARE | {"x": "tile_n", "y": HOSTILE}), 422, "bad-input")
        assert "smem.capacity" in problem_of(http.get("/v1/rules/smem.capacit"), 404, "unknown-rule")["detail"]

    def test_the_funnel_ends_at_the_served_one(self, http: TestClient, filled: Filled) -> None:
        problem = filled.problems[1]
        m, n, k = problem.extents
        steps = http.get("/v1/funnel", params={"m": m, "n": n, "k": k, "device": DEVICE}).json()["steps"]
        counts = [step["count"] for step in steps if step["count"] is not None]
        assert [step["name"] for step in steps][-3:] == ["correct", "finals", "served"]
        assert counts == sorted(counts, reverse=True)
        assert (counts[-4:-2], counts[-1]) == ([60, 54], 1)

    def test_neighbours_agree_with_single_questions(self, http: TestClient) -> None:
        problem, knobs = {"m": 4096, "n": 4096, "k": 4096}, {"tile_n": 256, "stages": 4, "epilogue": "direct"}
        body = http.post("/v1/explain:neighbours", json={"problem": problem, "knobs": knobs}).json()
        alone = http.post("/v1/explain", json={"problem": problem, "knobs": knobs}).json()
        assert {name: body[name] for name in alone} == alone
        (stages,) = (knob for knob in body["knobs"] if knob["name"] == "stages")
        for value in stages["values"]:
            changed = {"problem": problem, "knobs": knobs | {"stages": value["value"]}}
            asked = http.post("/v1/explain", json=changed).json()
            assert (value["state"] == "illegal") == (not asked["legal"])
            assert set(value["rules"]) <= {rule["rule"] for rule in asked["broken"] + asked["not_worth"]}
        assert sum(part["bytes"] for part in body["smem"]["parts"]) == body["smem"]["used_bytes"]


class TestFleet:
    def test_rounds_are_listed_newest_first(self, http: TestClient, filled: Filled) -> None:
        items = http.get("/v1/rounds", params={"campaign": filled.campaign}).json()["items"]
        assert [item["status"] for item in items] == ["running", "failed", *["done"] * len(NAMES)]
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
        assert launch["example"]["device"] == DEVICE
        assert launch["problems"] == len(NAMES)
        none = http.get("/v1/failures", params={"device": OTHER_DEVICE}).json()
        assert (none["total"], none["groups"]) == (0, [])

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
            "/v1/measurements/7": client.measurement(7), f"/v1/studies/{study}": client.study(study),
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


@pytest.mark.parametrize("since", ["0.5", "1700000000", "2026-03-01", "yesterday"])
def test_a_moment_is_a_date_with_a_time_and_a_zone(http: TestClient, since: str) -> None:
    problem_of(http.get("/v1/rounds", params={"since": since}), 422, "malformed-request")
    assert http.get("/v1/rounds", params={"since": "2026-03-01T12:00:00Z"}).status_code == 200


def test_the_stream_begins_with_hello(http: TestClient) -> None:
    answered = http.get("/v1/events", params={"seconds": 0.05}, headers={"Last-Event-ID": HOSTILE})
    assert answered.headers["content-type"].startswith("text/event-stream")
    assert 'event: hello\ndata: {"resumed": false' in answered.text
    problem_of(http.get("/v1/events", params={"seconds": 0}), 422, "malformed-request")


def test_the_service_says_what_it_is(http: TestClient) -> None:
    assert http.get("/v1/caller").json() == {"name": "local", "tokens": False,
                                             "scopes": ["read", "submit", "work", "admin"]}  # fmt: skip
    body = http.get("/v1/service").json()
    assert (body["store"], body["demo"], body["devices"]) == ("sqlite", False, [OTHER_DEVICE, DEVICE])


def test_markup_stays_text(http: TestClient) -> None:
    failed = http.get("/v1/measurements", params={"outcome": "compile"}).json()["items"]
    assert HOSTILE in failed[0]["detail"]
