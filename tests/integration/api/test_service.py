"""The service over HTTP, on a real store: right answers, and refusals that name the fix."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from fastapi.testclient import TestClient
from starlette.types import Message

from api.app import create_app
from api.bodies import MOST_BODY_BYTES
from api.concurrency import CALLER_BATCHES
from api.snapshot_follower import SnapshotFollower
from space.kinds.gemm import Gemm
from tests.integration.api.asking import ASKED, problem_of
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.tables.tables import table, table_bytes


def keep(http: TestClient, store: Store, problem: Gemm = PROBLEM, device: str = DEVICE) -> Best:
    """Stores a best and lets the service load it."""
    best = keep_best(store, problem, device)
    follow(http)
    return best


def follow(http: TestClient) -> None:
    """Doesn't wait for the follower's next poll."""
    app: Any = http.app
    app.state.follower.poll()


def unzstd(body: bytes) -> bytes:
    """A stream's frame does not say how long its content is."""
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read()


class TestBest:
    def test_a_tuned_problem_is_measured_with_its_evidence(self, http: TestClient, store: Store) -> None:
        best = keep(http, store)
        body = http.get("/v1/best", params=ASKED).json()
        assert (body["source"], body["config"]["key"], body["time_us"]) == ("measured", best.config.key, best.median_us)
        assert body["evidence"]["versus_cublaslt_first"]["value"] == 1.1
        assert body["evidence"]["verification"]["mismatches"] == 0

    def test_a_near_problem_gets_its_neighbours_config(self, http: TestClient, store: Store) -> None:
        keep(http, store)
        body = http.get("/v1/best", params=ASKED | {"k": 320}).json()
        assert body["source"] == "nearest"
        assert body["evidence"]["problem"]["key"] == PROBLEM.key

    def test_an_untuned_problem_is_predicted_and_says_so(self, http: TestClient) -> None:
        body = http.get("/v1/best", params={"m": 5000, "n": 5000, "k": 5000}).json()
        assert (body["source"], body["evidence"]) == ("predicted", None)
        assert body["time_us"] >= body["roofline_us"]

    def test_a_card_without_measured_rates_gets_a_prediction_without_an_interval(self, http: TestClient) -> None:
        body = http.get("/v1/best", params=ASKED | {"device": "GH200 96GB"}).json()
        assert (body["source"], body["device"], body["interval_us"]) == ("predicted", "NVIDIA GH200 480GB", None)
        assert "none was measured" in body["grounds"][0]

    def test_a_card_that_taught_another_ones_model_has_an_interval(self, http: TestClient) -> None:
        body = http.get("/v1/best", params=ASKED | {"device": "H100 SXM"}).json()
        assert (body["source"], body["device"]) == ("predicted", "NVIDIA H100 80GB HBM3")
        low_us, high_us = body["interval_us"]
        assert low_us < body["time_us"] < high_us
        assert "NVIDIA H100 80GB HBM3; on problems left out" in body["grounds"][0]

    def test_a_card_of_an_arch_that_nobody_measured_says_so(self, http: TestClient) -> None:
        body = http.get("/v1/best", params=ASKED | {"device": "A100 80GB SXM"}).json()
        assert (body["source"], body["config"]["family"], body["interval_us"]) == ("predicted", "mma_sync", None)
        assert body["why"].startswith("predicted, never measured on this architecture")

    def test_a_card_that_no_family_serves_gets_none_with_the_reason(self, http: TestClient) -> None:
        body = http.get("/v1/best", params=ASKED | {"device": "NVIDIA B200"}).json()
        assert (body["source"], body["config"], body["time_us"]) == ("none", None, None)
        assert "no kernel family is built for sm_100a" in body["why"]

    @pytest.mark.parametrize("path", ["/v1/best", "/v1/bests", "/v1/measurements", "/v1/tables/h200"])
    def test_a_device_goes_by_any_of_its_names(self, http: TestClient, store: Store, path: str) -> None:
        keep(http, store)
        about = {"device": "h200"} | (ASKED | {"require": "measured"} if path == "/v1/best" else {})
        body = http.get(path, params={} if "tables" in path else about).raise_for_status().json()
        assert body.get("items") or body["device"] == DEVICE

    def test_the_limits_of_a_device_say_whose_they_are(self, http: TestClient) -> None:
        body = http.get("/v1/devices/h200").raise_for_status().json()
        assert body["limits"]["name"] == body["name"] == DEVICE

    def test_each_limit_of_every_card_has_a_source(self, http: TestClient) -> None:
        for item in http.get("/v1/devices").raise_for_status().json()["items"]:
            limits = item["limits"]
            figures = limits.keys() - {"name", "arch", "measured", "sources"}
            assert not [figure for figure in figures if not limits["sources"].get(figure)], item["name"]

    def test_an_unknown_device_is_refused_with_the_nearest_known_ones(self, http: TestClient) -> None:
        detail = problem_of(http.get("/v1/best", params=ASKED | {"device": "NVIDIA H300"}), 422, "bad-input")["detail"]
        assert "the nearest known ones are NVIDIA H" in detail

    def test_what_nothing_is_legal_for_is_an_answer_too(self, http: TestClient) -> None:
        body = http.get("/v1/best", params=dict.fromkeys("mnk", 2**31 - 1)).json()
        assert (body["source"], body["config"]) == ("none", None)

    def test_only_measured_will_do_when_required(self, http: TestClient) -> None:
        problem_of(http.get("/v1/best", params=ASKED | {"require": "measured"}), 404, "not-measured")

    def test_several_devices_must_be_told_apart(self, http: TestClient, store: Store) -> None:
        keep(http, store)
        keep(http, store, device="NVIDIA H100 PCIe")
        problem_of(http.get("/v1/best", params=ASKED), 422, "device-needed")
        assert http.get("/v1/best", params=ASKED | {"device": DEVICE}).status_code == 200

    @pytest.mark.parametrize(
        ("change", "kind", "named"),
        [
            ({"m": 0}, "malformed-request", 'greater than or equal to 1, not "0"'),
            ({"m": -4}, "malformed-request", 'not "-4"'),
            ({"m": "x"}, "malformed-request", 'not "x"'),
            ({"m": "40.0"}, "malformed-request", 'give a whole number in digits, as in 4096, not "40.0"'),
            ({"m": " 40"}, "malformed-request", 'not " 40"'),
            ({"m": 2**31}, "malformed-request", "m"),
            ({"policy": "cold_graph"}, "malformed-request", "give one of sustained, burst, chain, chain_pdl, rounds"),
            ({"policy": ""}, "malformed-request", 'rounds, not ""'),
            ({"dtype": "bf17"}, "bad-input", "bf17"),
            ({"layout": "xx"}, "bad-input", "xx"),
            ({"shape": "1x1x1"}, "malformed-request", "shape: no such field: use one of kind, m, n, k"),
            ({"layuot": "nt"}, "malformed-request", "layuot: no such field: the nearest is layout"),
        ],
    )
    def test_bad_input_is_named(self, http: TestClient, change: dict[str, Any], kind: str, named: str) -> None:
        assert named in problem_of(http.get("/v1/best", params=ASKED | change), 422, kind)["detail"]


class TestMeasurements:
    def test_pages_hold_everything_once(self, http: TestClient, store: Store) -> None:
        study = store.begin_study(study_key())
        for n in range(8, 128, 8):
            store.record(study.id, measured(FAMILY.config({"tile_n": n})), PROVENANCE)
        seen, params = [], {"limit": "4"}
        while True:
            response = http.get("/v1/measurements", params=params)
            page = response.json()
            seen += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            assert 'rel="next"' in response.headers["link"]
            params = {"limit": "4", "cursor": page["next"]}
        assert seen == [stored.id for stored in store.measurements_of(study.id)]

    def test_one_has_the_joules_that_were_counted(self, http: TestClient, store: Store) -> None:
        study = store.begin_study(study_key())
        counted = replace(measured(FAMILY.config({})), product_joules=0.0009535)
        kept = store.record(study.id, counted, PROVENANCE)
        assert http.get(f"/v1/measurements/{kept.id}").json()["product_joules"] == 0.0009535

    def test_filters_filter(self, http: TestClient, store: Store) -> None:
        keep_best(store)
        for query, count in ((f"problem={PROBLEM.key}", 1), ("outcome=timeout", 0), ("device=l40s", 0)):
            assert len(http.get(f"/v1/measurements?{query}").json()["items"]) == count

    @pytest.mark.parametrize(
        ("query", "status", "kind"),
        [
            ("cursor=nonsense", 400, "bad-cursor"),
            ("limit=0", 422, "malformed-request"),
            ("limit=1001", 422, "malformed-request"),
            ("outcome=fine", 422, "malformed-request"),
            ("policy=cold_graph", 422, "malformed-request"),
            ("problem=4096", 422, "bad-input"),
            ("colour=red", 422, "malformed-request"),
        ],
    )
    def test_bad_queries_are_refused(self, http: TestClient, query: str, status: int, kind: str) -> None:
        problem_of(http.get(f"/v1/measurements?{query}"), status, kind)


class TestExplain:
    def test_an_illegal_config_is_an_answer(self, http: TestClient) -> None:
        knobs = {"tile_n": 256, "stages": 5, "epilogue": "direct"}
        body = http.post("/v1/explain", json={"problem": ASKED, "knobs": knobs}).json()
        assert (body["legal"], body["change"]) == (False, "stages=4")
        assert [entry["rule"] for entry in body["broken"]] == ["smem.capacity"]
        assert "232,448 B" in body["broken"][0]["numbers"]

    def test_a_legal_config_has_its_derived_values(self, http: TestClient) -> None:
        body = http.post("/v1/explain", json={"problem": ASKED}).json()
        assert body["legal"]
        assert body["judged"]
        assert body["derived"]["threads"] == 384

    @pytest.mark.parametrize("route", ["/v1/explain", "/v1/explain:neighbours"])
    def test_where_the_library_alone_knows_what_is_legal_the_answer_says_so(self, http: TestClient, route: str) -> None:
        body = http.post(route, json={"problem": ASKED, "family": "cublaslt"}).json()
        assert (body["judged"], body["broken"]) == (False, [])

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ({}, "malformed-request"),
            ({"problem": ASKED, "kobs": {}}, "malformed-request"),
            ({"problem": ASKED | {"m": 0}}, "malformed-request"),
            ({"problem": ASKED, "knobs": {"tile_m": 100}}, "bad-input"),
            ({"problem": ASKED, "knobs": {"tile": 128}}, "bad-input"),
            ({"problem": ASKED, "arch": "sm_90"}, "bad-input"),
            ({"problem": ASKED, "family": "sm70"}, "bad-input"),
            ({"problem": ASKED, "family": ""}, "bad-input"),
            ({"problem": ASKED, "device": ""}, "bad-input"),
            ([], "malformed-request"),
        ],
    )
    def test_malformed_bodies_are_refused(self, http: TestClient, body: object, kind: str) -> None:
        problem_of(http.post("/v1/explain", json=body), 422, kind)

    @pytest.mark.parametrize("path", ["/v1/explain", "/v1/campaigns", "/v1/best:batch"])
    @pytest.mark.parametrize("body", [b"{", b'{"problem": 1,}', b"\xff", b'{"m": "\xff"}', b"[" * 3_000])
    def test_a_body_that_is_not_json_is_no_wrong_field(self, http: TestClient, path: str, body: bytes) -> None:
        refused = http.post(path, content=body, headers={"Content-Type": "application/json"})
        said = problem_of(refused, 400, "malformed-body")
        assert said["errors"] == []
        assert said["detail"].startswith("the body is not valid JSON: ")

    def test_a_body_that_is_too_long_is_refused(self, http: TestClient) -> None:
        problem_of(http.post("/v1/explain", content=b" " * (MOST_BODY_BYTES + 1)), 413, "body-too-large")


class TestTables:
    @pytest.mark.parametrize(("accept", "encoding"), [("identity", None), ("gzip", "gzip"), ("gzip, zstd", "zstd")])
    def test_the_table_has_the_bytes_of_the_export_and_its_hash_as_etag(
        self, http: TestClient, store: Store, accept: str, encoding: str | None
    ) -> None:
        for m in range(1, 41):
            keep_best(store, Gemm.parse(f"{m}x512x512"), DEVICE)
        follow(http)
        with http.stream("GET", f"/v1/tables/{DEVICE}", headers={"Accept-Encoding": accept}) as response:
            raw = b"".join(response.iter_raw())
        assert response.headers.get("content-encoding") == encoding
        read = {None: bytes, "gzip": gzip.decompress, "zstd": unzstd}[encoding]
        expected = table_bytes(table(store, DEVICE))
        assert read(raw) == expected
        assert encoding is None or len(raw) < len(expected) / 4
        weak = "W/" if encoding else ""
        etag = response.headers["etag"]
        # One encoding is not the other, byte for byte (RFC 9110 §8.8.3.3).
        assert etag == f'{weak}"{json.loads(expected)["content"]}"'
        assert "Accept-Encoding" in response.headers["vary"]
        asked = {"If-None-Match": etag, "Accept-Encoding": accept}
        again = http.get(f"/v1/tables/{DEVICE}", headers=asked)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)

    def test_a_new_best_changes_the_etag(self, http: TestClient, store: Store) -> None:
        keep(http, store)
        before = http.get(f"/v1/tables/{DEVICE}").headers["etag"]
        keep(http, store, Gemm.parse("512x512x512"))
        assert http.get(f"/v1/tables/{DEVICE}", headers={"If-None-Match": before}).status_code == 200

    def test_an_unknown_device_is_told_the_known_ones(self, http: TestClient, store: Store) -> None:
        keep(http, store)
        assert DEVICE in problem_of(http.get("/v1/tables/nothing"), 404, "unknown-device")["detail"]


class TestService:
    def test_health_is_of_the_process_and_readiness_of_the_store(self, http: TestClient, store: Store) -> None:
        keep(http, store)
        assert http.get("/healthz").json() == {"status": "ok"}
        body = http.get("/readyz").json()
        assert (body["status"], body["bests"], body["left_out"]) == ("ready", 1, 0)

    def test_it_is_ready_once_the_columns_of_its_bests_are_made(self, http: TestClient) -> None:
        warmed = http.app.state.shown.warmed  # type: ignore[attr-defined]
        assert warmed.wait(60)
        warmed.clear()
        assert "columns" in problem_of(http.get("/readyz"), 503, "not-ready")["detail"]

    @pytest.mark.parametrize("method", ["POST", "PUT", "TRACE"])
    def test_a_probe_tells_everybody_which_methods_it_has(self, http: TestClient, method: str) -> None:
        assert http.request(method, "/healthz", headers={"authorization": ""}).status_code == 405
        assert http.request(method, "/readyz", headers={"authorization": "Bearer no"}).status_code == 405

    def test_a_store_that_is_gone_leaves_what_was_read_and_is_told(
        self, http: TestClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keep(http, store)
        for path in tmp_path.glob("store.db*"):
            path.unlink()
        (tmp_path / "store.db").write_bytes(b"garbage" * 1000)
        # Afterwards: a poll would open the store again.
        store.close()
        problem_of(http.get("/v1/measurements"), 503, "store-unavailable")
        assert http.get("/v1/best", params=ASKED).json()["source"] == "measured"
        assert http.get("/healthz").status_code == 200
        monkeypatch.setattr(SnapshotFollower, "age_seconds", lambda _: 60.0)
        problem_of(http.get("/readyz"), 503, "not-ready")

    def test_before_the_store_is_read_nothing_is_guessed(self, store: Store) -> None:
        keep_best(store)
        idle = TestClient(create_app(store))  # without its start, nothing is read
        assert idle.get("/v1/best", params=ASKED).json()["source"] == "measured"  # from the store itself
        problem_of(idle.get("/v1/best", params=ASKED | {"m": 300}), 503, "starting")
        problem_of(idle.get("/readyz"), 503, "not-ready")

    def test_a_browser_gets_a_page_for_an_unknown_path(self, http: TestClient) -> None:
        found = http.get("/devcies?<script>", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        assert (found.status_code, found.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is no page /devcies: choose" in found.text
        assert '<p><a href="/devices">Devices</a></p>' in found.text
        assert "<script" not in found.text
        assert found.headers["content-security-policy"].startswith("default-src 'none'")
        far = http.get("/%3Cb%3E" + "x" * 3_000, headers={"Accept": "text/html"}).text
        assert "/&lt;b&gt;xxx" in far
        assert "<b>" not in far
        assert len(far) < 4_000
        # What an endpoint did not find, and what no browser asks for, stay error documents.
        problem_of(http.get("/v1/campaigns/7", headers={"Accept": "text/html"}), 404, "unknown-campaign")
        problem_of(http.post("/devcies", headers={"Accept": "text/html"}), 404, "no-such-path")

    def test_unknown_paths_and_methods_are_problems(self, http: TestClient) -> None:
        problem_of(http.get("/v2/best"), 404, "no-such-path")
        problem_of(http.delete("/v1/best"), 405, "method-not-allowed")
        refused = http.delete("/v1/campaigns")
        problem_of(refused, 405, "method-not-allowed")
        # All of the path's, and not those of its first route alone.
        assert refused.headers["Allow"] == "GET, HEAD, POST"
        assert http.head("/v1/explain").headers["Allow"] == "POST"

    @pytest.mark.parametrize("path", [
        "/healthz", "/readyz", "/metrics", "/v1/best?m=256&n=256&k=256", "/v1/best?m=0", f"/v1/tables/{DEVICE}",
        f"/v1/tables/{DEVICE}?format=csv", "/v1/campaigns/7", "/v1/campaigns/7/events", "/v2", "/", "/openapi.json",
    ])  # fmt: skip
    def test_head_says_what_get_would_without_its_body(self, http: TestClient, store: Store, path: str) -> None:
        keep(http, store)
        asked, whole = http.head(path), http.get(path)
        about = [dict(one.headers) | {"x-request-id": "", "content-length": ""} for one in (asked, whole)]
        assert (asked.status_code, asked.content, about[0]) == (whole.status_code, b"", about[1])
        # Metrics, times of a probe and the document of an error differ each time.
        if whole.status_code == 200 and path not in ("/metrics", "/readyz"):
            assert asked.headers.get("content-length") == whole.headers.get("content-length")

    @pytest.mark.parametrize("path", ["/v1/explain", "/v1/campaigns", "/v1/best:rollback", "/v1/best:batch"])
    def test_a_body_that_is_not_sent_as_json_is_refused(self, http: TestClient, path: str) -> None:
        for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {}):
            problem_of(http.post(path, content=b"{}", headers=headers), 415, "not-json")
        for kind in ("application/json", "application/merge-patch+json"):
            wrong = http.post(path, content=b"[]", headers={"Content-Type": kind})
            problem_of(wrong, 422, "malformed-request")

    def test_request_ids_are_kept_when_they_are_harmless(self, http: TestClient) -> None:
        assert http.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
        assert http.get("/healthz", headers={"X-Request-Id": "a b\tc"}).headers["x-request-id"] != "a b\tc"

    def test_the_description_declares_problems_and_operation_ids(self, http: TestClient) -> None:
        document = http.get("/openapi.json").json()
        operations = [op for path in document["paths"].values() for op in path.values()]
        assert len({op["operationId"] for op in operations}) == len(operations) >= 6
        for operation in operations:
            assert "application/problem+json" in operation["responses"]["422"]["content"]
        assert "ProblemDocument" in document["components"]["schemas"]


def test_batches_of_a_caller_that_reads_no_answers_wait_for_each_other(http: TestClient) -> None:
    app, begun, read = http.app, list[int](), asyncio.Event()
    body = orjson.dumps({"problems": [ASKED]})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "POST",
             "path": "/v1/best:batch", "query_string": b"", "headers": headers}  # fmt: skip

    async def ask(number: int) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(number)
            await read.wait()

        await app(dict(scope), receive, send)

    async def five() -> None:
        asked = [asyncio.create_task(ask(number)) for number in range(CALLER_BATCHES + 1)]
        while len(begun) < CALLER_BATCHES:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(begun) == CALLER_BATCHES
        read.set()
        await asyncio.gather(*asked)
        assert len(begun) == CALLER_BATCHES + 1

    assert http.portal is not None
    http.portal.call(five)
