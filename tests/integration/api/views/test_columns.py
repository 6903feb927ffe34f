"""Bests and measurements as columns say what the answers and the objects say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.views.bests import BestColumnsOut
from space.kinds.gemm import Gemm
from tests.integration.api.asking import problem_of
from tests.integration.api.views.columns import column, knob
from tests.recorded_store import DEVICE, NAMES, OTHER_DEVICE, Filled
from tests.support import PROBLEM, keep_best
from tuner.evidence.store import Store
from tuner.views import bests, measurements
from tuner.views.measurements import MeasurementColumns, Wanted
from tuner.views.versions import CHANGES


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
        of_store = MeasurementColumns(store).document(Wanted())["version"] // CHANGES
        wanted = replace(wanted, after=of_store * CHANGES + wanted.after)
        held = MeasurementColumns(store).document(wanted)
        monkeypatch.setattr(measurements, "MOST_HELD", 0)
        read = MeasurementColumns(store).document(wanted)
        names = held["columns"].keys() - {"config"}
        assert {name: str(column(held, name)) for name in names} == {name: str(column(read, name)) for name in names}
        assert knob(held, "tile_m") == knob(read, "tile_m") if held["rows"] else held["configs"]["knobs"] == {}
        assert all(held[name] == read[name] for name in ("rows", "total", "sampled", "step", "version", "whole"))

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
        rest = http.get("/v1/measurements:columns", params={"after": whole["version"] - 3}).json()
        assert (whole["whole"], rest["whole"], column(rest, "id")) == (True, False, ids[-3:])
        none = http.get("/v1/measurements:columns", params={"after": whole["version"]}).json()
        assert (none["rows"], none["whole"], none["version"]) == (0, False, whole["version"])

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

    def test_two_measurements_compared(self, http: TestClient, filled: Filled) -> None:
        one, other = (
            http.get("/v1/measurements", params={"problem": problem.key, "limit": 1}).json()["items"][0]["id"]
            for problem in filled.problems[:2]
        )
        same = http.get(f"/v1/measurements/{one}/versus/{one}").json()
        assert same["value"] == 1
        problem_of(http.get(f"/v1/measurements/{one}/versus/{other}"), 409, "not-comparable")
        problem_of(http.get(f"/v1/measurements/{one}/versus/999999"), 404, "unknown-measurement")

    def test_a_campaigns_measurements(self, http: TestClient, filled: Filled) -> None:
        body = http.get("/v1/measurements:columns", params={"campaign": filled.campaign}).json()
        assert set(column(body, "device_kind")) == {"recorded"}
        assert set(column(body, "problem")) == {problem.key for problem in filled.problems}


def test_a_question_about_a_campaign_that_is_not_there_yet_has_another_answer_afterwards(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, TestClient(create_app(store)) as http:
        keep_best(store)

        def asked() -> list[httpx2.Response]:
            return [http.get(f"/v1/{path}", params={"campaign": 1}) for path in ("measurements:columns", "failures")]

        for answer in asked():
            problem_of(answer, 404, "unknown-campaign")
        problem = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k}
        http.post("/v1/campaigns", json={"name": "late", "problems": [problem], "devices": [{"name": DEVICE}]})
        columns, failures = (answer.json() for answer in asked())
        assert (columns["rows"], failures["measured"]) == (1, 1)
