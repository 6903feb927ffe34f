"""Answers from memory equal the store's, byte for byte, within a second."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text, update

from api.answer_service import AnswerService
from api.app import create_app
from api.batches import MOST_PROBLEMS, BatchOut, PolicyName
from api.device_bests import CachedBest
from api.schemas import BestOut
from api.snapshot import Snapshot
from api.tables import TableOut, rendered
from space.kinds.gemm import Gemm
from tests.integration.api.asking import ASKED, problem_of
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.errors import StoreError
from tuner.evidence.models import ConfigRow
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, Policy
from tuner.evidence.store import Store
from tuner.prediction import files
from tuner.tables.entries import best_of, content_of, entry
from tuner.tables.tables import table, table_bytes

SHAPES = [(256, 256, 256), (512, 256, 256), (1, 4096, 4096), (300, 1024, 640), (8192, 8192, 8192)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('snapshot')}/store.db") as opened:
        for m, n, k in SHAPES:
            keep_best(opened, Gemm(m, n, k))
        keep_best(opened, Gemm.of(64, 64, 64, "fp8_e4m3"))
        yield opened


@pytest.fixture(scope="module")
def http(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


class TestSnapshot:
    def test_it_gives_the_bests_and_neighbours_of_the_store(self, http: TestClient, store: Store) -> None:
        snapshot: Any = http.app.state.answer_service.snapshot  # type: ignore[attr-defined]
        for asked in (*(Gemm(*shape) for shape in SHAPES), Gemm(400, 400, 400), Gemm.of(8, 8, 8, "int8")):
            assert snapshot.best(asked, DEVICE) == store.best(asked, DEVICE)
            assert list(snapshot.neighbours(asked, DEVICE)) == store.neighbours(asked, DEVICE)

    def test_an_entry_is_the_best_again(self, store: Store) -> None:
        for best in store.bests():
            assert best_of(best.device, json.loads(json.dumps(entry(best)))) == best

    def test_it_follows_the_store_within_a_second(self, own_store: Store) -> None:
        with TestClient(create_app(own_store)) as client:
            keep_best(own_store)
            until = time.monotonic() + 60
            while client.get("/v1/best", params=ASKED).json()["source"] != "measured":
                assert time.monotonic() < until
            first = keep_best(own_store, us=9.0)
            client.app.state.follower.poll()  # type: ignore[attr-defined]
            assert client.get("/v1/best", params=ASKED).json()["evidence"]["measurement_id"] == first.winner.id

    def test_a_gpus_own_best_stands_before_a_replayed_one(self, own_store: Store) -> None:
        own = keep_best(own_store)
        study = own_store.begin_study(replace(study_key(), device_kind="recorded"))
        stored = own_store.record(study.id, own.winner.measurement, PROVENANCE)
        own_store.set_bests([replace(own, device_kind="recorded", winner=stored)])
        with TestClient(create_app(own_store)) as client:
            assert client.get("/v1/best", params=ASKED).json()["evidence"]["device_kind"] == "cuda"
            assert [item["device_kind"] for item in client.get(f"/v1/tables/{DEVICE}").json()["entries"]] == ["cuda"]

    def test_a_best_that_cant_be_read_is_left_out_and_the_others_served(self, own_store: Store) -> None:
        keep_best(own_store)
        with own_store.transaction(writes=True) as session:
            session.execute(text("DROP TRIGGER config_fixed"))
            session.execute(update(ConfigRow).values(key="sm70_wmma:tile_m=1"))
        keep_best(own_store, Gemm(512, 512, 512))
        with TestClient(create_app(own_store)) as client:
            assert client.get("/readyz").json()["left_out"] == 1
            assert client.get("/v1/best?m=512&n=512&k=512").json()["source"] == "measured"

    def test_one_that_cant_be_read_ends_the_one_that_it_replaced(self, own_store: Store) -> None:
        keep_best(own_store)
        with TestClient(create_app(own_store)) as client:
            assert client.get("/v1/best", params=ASKED).json()["source"] == "measured"
            with own_store.transaction(writes=True) as session:
                session.execute(text("DROP TRIGGER config_fixed"))
                session.execute(update(ConfigRow).values(key="sm70_wmma:tile_m=1"))
                # As a newer version would have replaced it.
                session.execute(text("UPDATE best SET version = 2"))
                session.execute(text("UPDATE counter SET value = 2 WHERE name = 'best'"))
            client.app.state.follower.poll()  # type: ignore[attr-defined]
            assert client.get("/v1/best", params=ASKED).json()["source"] == "predicted"
            assert client.get("/readyz").json()["left_out"] == 1

    def test_a_store_put_back_to_an_earlier_state_is_read_anew(self, tmp_path: Path) -> None:
        earlier, later = f"sqlite:///{tmp_path}/earlier.db", f"sqlite:///{tmp_path}/later.db"
        with Store.open(earlier) as before, Store.open(later) as after:
            keep_best(before)
            for m in (64, 128):
                keep_best(after, Gemm(m, 64, 64))
            app = create_app(after)
            app.state.follower.poll()
            app.state.follower.store = before
            app.state.follower.poll()
            assert [len(app.state.follower.snapshot), app.state.follower.snapshot.version] == [1, 1]

    def test_the_first_page_and_answers_from_all_over_are_rendered_first(
        self, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.snapshot_follower._FIRST_PAGE", 3)
        monkeypatch.setattr("api.snapshot_follower._RENDERED_AT_FIRST", 2)
        for m in range(64, 64 * 11, 64):
            keep_best(own_store, Gemm(m, 256, 256))
        follower = create_app(own_store).state.follower
        follower.poll()
        known = follower.snapshot.devices[DEVICE]
        rendered = [place for place, key in enumerate(known.keys) if isinstance(known.held[key], CachedBest)]
        assert rendered == [0, 1, 2, 5]


class TestTheShortWay:
    @given(
        shape=st.sampled_from([*SHAPES, (64, 64, 64), (5, 5, 5)]),
        spelled=st.dictionaries(
            st.sampled_from(["dtype", "layout", "batch", "epilogue", "device", "require", "colour"]),
            st.sampled_from(["bf16", "fp8_e4m3", "nt", "nn", "1", "01", "2", "none", "gelu", DEVICE, "any", "measured",
                             "", "bf16,bf16,bf16,f32", "x"]),
            max_size=3,
        ),
        broken=st.sampled_from(["", "m=0256", "m=+256", "m=256.0", "m=%32%35%36", "m=256x256", "&", "m", "k="]),
    )  # fmt: skip
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
    def test_it_says_what_the_long_way_says(
        self, http: TestClient, shape: tuple[int, int, int], spelled: dict[str, str], broken: str
    ) -> None:
        fields = dict(zip("mnk", map(str, shape), strict=True)) | spelled
        if broken.startswith("m"):
            fields.pop("m")
        query = "&".join(part for part in (urlencode(fields), broken) if part)
        answerer = http.app.state.answer_service  # type: ignore[attr-defined]
        short = answerer.measured(query.encode())
        if short is not None:
            # An empty parameter at the end bypasses the fast path and changes nothing.
            long = http.get(f"/v1/best?{query}&")
            assert (long.status_code, long.content) == (200, short.answer)

    def test_measured_problems_do_take_it(self, http: TestClient) -> None:
        answerer = http.app.state.answer_service  # type: ignore[attr-defined]
        for m, n, k in SHAPES:
            for rest in ("", "&dtype=bf16&layout=nt&batch=1", "&device=NVIDIA+H200", "&device=NVIDIA%20H200"):
                assert answerer.measured(f"m={m}&n={n}&k={k}{rest}".encode())

    def test_its_bytes_are_of_the_declared_kind(self, http: TestClient) -> None:
        for m, n, k in SHAPES:
            BestOut.model_validate_json(http.get(f"/v1/best?m={m}&n={n}&k={k}").content)


class TestBatch:
    def test_it_says_what_single_questions_say_in_their_order(self, http: TestClient) -> None:
        shapes = [*SHAPES, (5000, 5000, 5000), (400, 256, 256)]
        problems = [dict(zip("mnk", shape, strict=True)) for shape in shapes]
        response = http.post("/v1/best:batch", json={"problems": problems, "device": DEVICE})
        body = response.json()
        singles = [http.get("/v1/best", params=problem | {"device": DEVICE}).json() for problem in problems]
        assert body == {"items": singles, "unanswered": []}
        BatchOut.model_validate(body)

    @given(
        problems=st.lists(
            st.fixed_dictionaries(
                {"m": st.sampled_from([256, 5, "256", 256.0, True, None, 0, [256]]), "n": st.just(256)},
                optional={
                    "k": st.sampled_from([256, 512, "256"]),
                    "dtype": st.sampled_from(["bf16", "bf16,bf16,bf16,f32", 1]),
                    "layout": st.sampled_from(["nt", "x", None]), "batch": st.sampled_from([1, "1", True, None]),
                    "epilogue": st.sampled_from(["none", "gelu"]), "kind": st.sampled_from(["gemm", "other", [], None]),
                    "colour": st.just("red"),
                },
            ) | st.sampled_from([ASKED, ASKED, None, 1, "m", [], {}]),
            min_size=1, max_size=3,
        )
    )  # fmt: skip
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
    def test_it_says_what_it_says_after_validating_every_problem(self, http: TestClient, problems: list[Any]) -> None:
        body = {"problems": problems, "require": "measured"}
        short = http.post("/v1/best:batch", json=body)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("api.batches._plain_key", lambda given: None)
            long = http.post("/v1/best:batch", json=body)
        if short.status_code == 200:
            assert (long.status_code, long.content) == (200, short.content)
        else:
            shown, known = (answer.json() for answer in (short, long))
            assert [shown[name] for name in ("status", "detail")] == [known[name] for name in ("status", "detail")]

    def test_measured_problems_are_not_validated_one_by_one(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Which takes longer than all the rest of a large batch."""
        validated = list[int]()

        def none(given: list[Any], places: list[int], rest: object) -> list[Any]:
            validated.extend(places)
            return []

        monkeypatch.setattr("api.batches._validated", none)
        body = {"problems": [ASKED] * 700, "require": "measured"}
        assert http.post("/v1/best:batch", json=body).json()["unanswered"] == validated == []

    def test_only_measured_when_that_is_required(self, http: TestClient) -> None:
        problems = [{"m": 7, "n": 7, "k": 8}, ASKED]
        body = http.post("/v1/best:batch", json={"problems": problems, "require": "measured"}).json()
        assert body["unanswered"] == [0]
        assert [item and item["source"] for item in body["items"]] == [None, "measured"]

    def test_under_a_policy_it_says_what_single_questions_say_while_there_is_time(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problems = [ASKED, {"m": 7, "n": 7, "k": 8}]
        body: dict[str, Any] = {"problems": problems, "policy": "rounds"}
        singles = [http.get("/v1/best", params=problem | {"policy": "rounds"}).json() for problem in problems]
        assert http.post("/v1/best:batch", json=body).json() == {"items": singles, "unanswered": []}
        required = http.post("/v1/best:batch", json=body | {"require": "measured"}).json()
        assert [item and item["source"] for item in required["items"]] == ["measured", None]
        assert set(get_args(PolicyName)) == set(Policy)
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", -1.0)
        assert http.post("/v1/best:batch", json=body).json()["unanswered"] == [0, 1]

    def test_computing_ends_and_goes_on_when_asked_again(
        self, http: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", -1.0)
        problems = [{"m": 9000 + 8 * place, "n": 9000, "k": 9000} for place in range(3)]
        assert http.post("/v1/best:batch", json={"problems": problems}).json()["unanswered"] == [0, 1, 2]
        monkeypatch.setattr("api.batches._COMPUTING_SECONDS", 60.0)
        assert http.post("/v1/best:batch", json={"problems": problems}).json()["unanswered"] == []

    @pytest.mark.parametrize(
        ("body", "kind", "pointer"),
        [
            ({"problems": []}, "malformed-request", "/problems"),
            ({"problems": [ASKED] * (MOST_PROBLEMS + 1)}, "malformed-request", "/problems"),
            ({"problems": [ASKED, ASKED | {"m": 0}]}, "malformed-request", "/problems/1/m"),
            ({"problems": [ASKED] * 700 + [ASKED | {"m": 0}]}, "malformed-request", "/problems/700/m"),
            ({"problems": [ASKED | {"m": "256"}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [ASKED | {"m": True}]}, "malformed-request", "/problems/0/m"),
            ({"problems": [ASKED | {"shape": 1}]}, "malformed-request", "/problems/0/shape"),
            ({"problems": [ASKED, ASKED | {"dtype": "bf17"}]}, "bad-input", "/problems/1"),
            ({"problems": [ASKED], "devise": "x"}, "malformed-request", "/devise"),
            ({"problems": [ASKED], "device": "a\x00b"}, "malformed-request", "/device"),
            ([], "malformed-request", "/"),
        ],
    )
    def test_bad_batches_are_refused_with_a_pointer(
        self, http: TestClient, body: object, kind: str, pointer: str
    ) -> None:
        document = problem_of(http.post("/v1/best:batch", json=body), 422, kind)
        assert document["errors"][0]["pointer"] == pointer

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 5000, b'{"problems": NaN}'])
    def test_what_is_no_json_is_refused(self, http: TestClient, content: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        problem_of(http.post("/v1/best:batch", content=content, headers=headers), 422, "malformed-request")

    def test_another_content_type_is_refused(self, http: TestClient) -> None:
        response = http.post("/v1/best:batch", content=b"{}", headers={"Content-Type": "text/plain"})
        problem_of(response, 415, "not-json")


class TestTables:
    def test_a_table_has_the_bytes_of_the_export(self, http: TestClient, store: Store) -> None:
        response = http.get(f"/v1/tables/{DEVICE}")
        assert response.content == table_bytes(table(store, DEVICE))
        TableOut.model_validate_json(response.content)

    def test_pages_hold_the_table_once(self, http: TestClient, store: Store) -> None:
        seen, params = [], {"device": DEVICE, "limit": "2"}
        while True:
            page = http.get("/v1/bests", params=params).json()
            seen += page["items"]
            if page["next"] is None:
                break
            params["cursor"] = page["next"]
        assert seen == json.loads(table_bytes(table(store, DEVICE)))["entries"]

    def test_a_cursor_of_another_device_is_refused(self, http: TestClient, store: Store) -> None:
        cursor = http.get("/v1/bests", params={"device": DEVICE, "limit": "2"}).json()["next"]
        other = http.get("/v1/measurements", params={"cursor": cursor})
        problem_of(other, 400, "bad-cursor")


class TestDevices:
    def test_they_are_counted_by_kind(self, http: TestClient) -> None:
        body = http.get(f"/v1/devices/{DEVICE}").json()
        assert (body["bests"], body["kinds"]) == (len(SHAPES) + 1, {"cuda": len(SHAPES) + 1})
        assert body["limits"]["sm_count"] == 132
        assert DEVICE in [item["name"] for item in http.get("/v1/devices").json()["items"]]

    def test_an_unknown_one_is_told_the_known_ones(self, http: TestClient) -> None:
        assert DEVICE in problem_of(http.get("/v1/devices/H201"), 404, "unknown-device")["detail"]


class TestMetrics:
    def test_what_was_asked_is_counted_by_route_and_source(self, http: TestClient) -> None:
        http.get("/v1/best", params=ASKED)
        http.get("/made/up/by/the/client")
        text = http.get("/metrics").text
        assert 'gemmtune_http_requests_total{method="GET",route="/v1/best",status="200"}' in text
        assert 'gemmtune_answers_total{source="measured"}' in text
        assert f"gemmtune_snapshot_bests {len(SHAPES) + 1:.1f}" in text
        assert "/made/up" not in text


def test_families_know_their_configs_by_key() -> None:
    from tuner.evidence.codec import config_of

    for config in (FAMILY.config({}), FAMILY.config({"tile_n": 64})):
        assert config_of(config.key) == config


class TestALargeStore:
    """Bests of which the service keeps the keys, and only a few answers."""

    @pytest.fixture(autouse=True)
    def little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("api.snapshot.MOST_RENDERED", 2)
        monkeypatch.setattr("api.snapshot_follower.MOST_RENDERED", 2)

    def test_answers_pages_and_tables_are_those_of_a_small_store(
        self, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for m in range(64, 64 * 12, 64):
            keep_best(own_store, Gemm(m, 256, 256))
        keep_best(own_store, device="NVIDIA B200")
        paths = [f"/v1/best?m={m}&n=256&k=256&device=NVIDIA%20H200" for m in (64, 100, 640, 64)]
        paths += [f"/v1/tables/{DEVICE}", f"/v1/bests?device={DEVICE}&limit=3", "/v1/devices"]
        with TestClient(create_app(own_store)) as client:
            found = [client.get(path).content for path in paths]
            snapshot = client.app.state.follower.snapshot  # type: ignore[attr-defined]
            assert sum(not isinstance(held, str) for held in snapshot.devices[DEVICE].held.values()) <= 2
        monkeypatch.setattr("api.snapshot.MOST_RENDERED", 1_000)
        with TestClient(create_app(own_store)) as client:
            assert found == [client.get(path).content for path in paths]

    def test_questions_of_one_moment_are_read_together(self, own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for m in range(64, 64 * 12, 64):
            keep_best(own_store, Gemm(m, 256, 256))
        with TestClient(create_app(own_store)) as client:
            service: AnswerService = client.app.state.answer_service  # type: ignore[attr-defined]
            reads: list[int] = []
            load = service.snapshot._load

            def counted(name: str, keys: Sequence[str]) -> Sequence[Best | StoreError]:
                reads.append(len(keys))
                return load(name, keys)

            monkeypatch.setattr(service.snapshot, "_load", counted)

            async def ask(m: int) -> bytes | None:
                found = service.measured(f"m={m}&n=256&k=256".encode())
                held = found if found is None or isinstance(found, CachedBest) else await found()
                return held.answer if held else None

            async def ask_all() -> list[bytes | None]:
                return await asyncio.gather(*map(ask, [*range(64, 64 * 12, 64)] * 2))

            texts = asyncio.run(ask_all())
            assert texts == [client.get(f"/v1/best?m={m}&n=256&k=256").content for m in range(64, 64 * 12, 64)] * 2
            assert max(reads) > 2

    def test_a_store_that_cant_be_read_is_told(self, own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for m in (64, 128, 192):
            keep_best(own_store, Gemm(m, 256, 256))

        def fails(name: str, keys: Sequence[str]) -> list[Best | StoreError]:
            raise StoreError("the disk is gone: put it back")

        with TestClient(create_app(own_store)) as client:
            snapshot = client.app.state.follower.snapshot  # type: ignore[attr-defined]
            monkeypatch.setattr(snapshot, "_load", fails)
            statuses = [client.get(f"/v1/best?m={m}&n=256&k=256").status_code for m in (64, 128, 192)]
            assert sorted(statuses) == [200, 200, 503]

    def test_changes_after_the_index_are_followed(self, own_store: Store) -> None:
        for m in (64, 128, 192):
            keep_best(own_store, Gemm(m, 256, 256))
        with TestClient(create_app(own_store)) as client:
            assert client.get("/v1/best?m=128&n=256&k=256").json()["time_us"] == 10.0
            for m in (100, 128):
                keep_best(own_store, Gemm(m, 256, 256), us=3.0)
            client.app.state.follower.poll()  # type: ignore[attr-defined]
            for m in (100, 128):
                assert client.get(f"/v1/best?m={m}&n=256&k=256").json()["time_us"] == 3.0
            keys = [item["problem"]["m"] for item in client.get(f"/v1/bests?device={DEVICE}").json()["items"]]
            assert sorted(keys) == [64, 100, 128, 192]

    def test_exact_questions_are_answered_while_the_store_is_read(
        self, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        best = keep_best(own_store)
        monkeypatch.setattr("api.snapshot_follower.SnapshotFollower.poll", lambda self: None)
        monkeypatch.setattr("api.app._FIRST_READING_SECONDS", 0.0)
        with TestClient(create_app(own_store), raise_server_exceptions=False) as client:
            assert client.get("/readyz").status_code == 503
            for asked in (ASKED, ASKED | {"require": "measured"}):
                found = client.get("/v1/best", params=asked)
                assert (found.status_code, found.json()["time_us"]) == (200, best.median_us)
            assert client.get("/v1/best?m=1&n=8&k=8").status_code == 503
            assert client.get("/v1/best?m=1&n=8&k=8&require=measured").status_code == 404


def test_a_best_of_an_older_kernel_is_stale_and_not_measured(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        keep_best(store, by=replace(PROVENANCE, kernel_source_digest="older"))
        with TestClient(create_app(store)) as http:
            asked = {"m": 256, "n": 256, "k": 256}
            for spelling in ("", "&"):  # the fast path, and the framework
                said = http.get(f"/v1/best?m=256&n=256&k=256{spelling}").json()
                assert said["source"] == "stale"
                assert "its kernel has changed since: build unknown then" in said["why"]
                assert said["evidence"]["build_digest"] == ""
            refused = http.get("/v1/best", params=asked | {"require": "measured"})
            assert (refused.status_code, refused.json()["type"]) == (404, "/problems/not-measured")
            for required, sources in (("any", ["stale"]), ("measured", [None])):
                said = http.post("/v1/best:batch", json={"problems": [asked], "require": required}).json()
                assert [item and item["source"] for item in said["items"]] == sources


@pytest.mark.parametrize(("old", "chain", "burst"), [(Policy.BURST, 200, 404), (Policy.CHAIN, 404, 200)])
def test_what_is_required_to_be_measured_is_the_best_of_the_policy(
    own_store: Store, old: Policy, chain: int, burst: int
) -> None:
    for policy in (Policy.BURST, Policy.CHAIN):
        by = replace(PROVENANCE, kernel_source_digest="older") if policy is old else PROVENANCE
        taken = [measured(FAMILY.config({}), stage="final", policy=policy)]
        study = own_store.begin_study(study_key(), fresh=True)
        own_store.set_bests(bests_of(PROBLEM, own_store.record_many(study.id, taken, by), 1, {}))
    with TestClient(create_app(own_store)) as http:
        asked = ASKED | {"require": "measured"}
        statuses = [http.get("/v1/best", params=asked | {"policy": each}).status_code for each in ("chain", "burst")]
    assert statuses == [chain, burst]


def test_nothing_that_was_derived_before_a_restore_is_served_after_it(tmp_path: Path, own_store: Store) -> None:
    near = {"m": 256, "n": 256, "k": 320}

    def known(client: TestClient) -> list[Any]:
        client.app.state.follower.poll()  # type: ignore[attr-defined]
        source = client.get("/v1/best", params=near).json()["source"]
        return [source, *(entry["problem"]["key"] for entry in client.get(f"/v1/tables/{DEVICE}").json()["entries"])]

    first, lost, later = Gemm(1024, 256, 256), Gemm(256, 256, 256), Gemm(8192, 256, 256)
    keep_best(own_store, first)
    with TestClient(create_app(own_store)) as client:
        file = Path(own_store._engine.url.database or "")
        with closing(sqlite3.connect(file)) as now, closing(sqlite3.connect(tmp_path / "backup")) as backup:
            now.backup(backup)
            keep_best(own_store, lost)
            assert known(client) == ["nearest", *sorted((lost.key, first.key))]
            backup.backup(now)
        client.app.state.follower.poll()  # type: ignore[attr-defined]
        # The second change of either history.
        keep_best(own_store, later)
        assert known(client) == ["predicted", *sorted((first.key, later.key))]


def test_predictions_are_those_of_the_latest_model(tmp_path: Path, own_store: Store) -> None:
    path = tmp_path / files.file_name(DEVICE)
    shipped = files.load(files.SHIPPED / path.name)
    with TestClient(create_app(own_store, models=tmp_path)) as client:
        for candidates in (101, 102):
            facts = shipped.facts.model_copy(update={"candidates": candidates})
            files.save(replace(shipped, facts=facts), path)
            os.utime(path, (candidates, candidates))
            said = client.get("/v1/best", params=ASKED).json()
            assert said["grounds"][0].startswith(f"learned from {candidates} candidates")


def test_a_table_is_of_one_moment(own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.tables._AT_ONCE", 1)
    for m in (64, 128, 192):
        keep_best(own_store, Gemm(m, 256, 256))
    app = create_app(own_store)
    follower = app.state.follower
    follower.poll()
    parts = rendered(app.state.views.of(follower.snapshot, DEVICE))
    begun = [next(parts) for _ in range(3)]
    keep_best(own_store, Gemm(192, 256, 256), us=3.0)
    follower.poll()
    document = json.loads(b"".join([*begun, *parts]))
    assert document["content"] == content_of(document)


@pytest.mark.parametrize("unreadable", [0, 1, 2])
@pytest.mark.parametrize("most", [0, 100])
def test_a_table_leaves_out_what_it_cannot_read(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, unreadable: int, most: int
) -> None:
    monkeypatch.setattr("api.tables._AT_ONCE", 1)
    monkeypatch.setattr("api.tables.MOST_RENDERED", most)
    bests = [keep_best(own_store, Gemm(m, 256, 256)) for m in (128, 192, 64)]
    load = own_store.served_of
    monkeypatch.setattr(own_store, "served_of", lambda device, keys: [
        StoreError("of another version") if best.problem == bests[unreadable].problem else best  # type: ignore[union-attr]
        for best in load(device, keys)
    ])  # fmt: skip
    with TestClient(create_app(own_store)) as client:
        document = client.get(f"/v1/tables/{DEVICE}").json()
    del bests[unreadable]
    assert [entry["problem"]["key"] for entry in document["entries"]] == [best.problem.key for best in bests]


def test_an_answer_that_was_being_read_does_not_replace_a_newer_one(own_store: Store) -> None:
    old, new = keep_best(own_store, us=10.0), keep_best(own_store, us=5.0)
    snapshot = Snapshot(lambda device, keys: [old])
    snapshot.index(DEVICE, "cuda", [(PROBLEM.key, "gemm", 256, 256, 256)])
    snapshot.finish_index(1)
    follower, looks = threading.Thread(target=snapshot.apply, args=([(2, new)],)), itertools.count(1)

    class Watched(dict[str, Any]):
        """The follower's change comes between the reader's second look, which finds nothing rendered, and its write."""

        def get(self, key: str, default: object = None) -> Any:  # noqa: ANN401
            found = super().get(key, default)
            if next(looks) == 2:
                follower.start()
                follower.join(0.2)
            return found

    known = snapshot.devices[DEVICE]
    known.held = Watched(known.held)
    snapshot.load(DEVICE, [PROBLEM.key])
    follower.join()
    assert known.held[PROBLEM.key].best(DEVICE).median_us == 5.0
