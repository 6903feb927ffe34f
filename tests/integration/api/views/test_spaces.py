"""Spaces over HTTP: what rules remove, why a cell is empty, and the neighbours of a config."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.integration.api.asking import problem_of
from tests.recorded_store import DEVICE, HOSTILE, Filled

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

    @pytest.mark.parametrize("dtype", ["fp8_e4m3", "tf32", "int8"])
    @pytest.mark.parametrize("route", ["/v1/explain", "/v1/explain:neighbours"])
    def test_who_chooses_no_knob_is_not_told_that_the_defaults_are_illegal(
        self, http: TestClient, route: str, dtype: str
    ) -> None:
        problem = {"m": 4096, "n": 4096, "k": 4096, "dtype": dtype}
        assert http.post(route, json={"problem": problem}).json()["legal"]
        # One that is chosen stays.
        chosen = http.post(route, json={"problem": problem, "knobs": {"tile_k": 64, "stages": 4}}).json()
        assert not chosen["legal"]
        assert chosen["config"]["knobs"]["tile_k"] == 64
