"""Answers from memory equal the store's, byte for byte, within a second."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text, update

from api.app import create_app
from api.device_bests import CachedBest
from api.schemas import BestOut
from api.snapshot import Snapshot
from space.kinds.gemm import Gemm
from tests.fleet import Fleet
from tests.integration.api.asking import ASKED, problem_of
from tests.integration.api.snapshot.conftest import SHAPES
from tests.recorded_store import PATIENT
from tests.restores import copy_over
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.evidence import revocations
from tuner.evidence.models import ConfigRow
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, Policy
from tuner.evidence.store import Store
from tuner.fleet.campaigns.workers import Workers
from tuner.prediction import files
from tuner.tables.entries import best_of, entry
from tuner.views.feed import Feed
from tuner.views.rounds import ProgressBoard


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

    def test_a_best_stays_when_one_under_another_policy_is_revoked(self, own_store: Store) -> None:
        study = own_store.begin_study(study_key(), fresh=True)
        kept = own_store.record(study.id, measured(FAMILY.config({}), stage="final", policy=Policy.CHAIN), PROVENANCE)
        fleet = Fleet(own_store)
        fleet.campaign([PROBLEM])
        bad = fleet.hand(1)
        task = bad.claimed()
        bad.begin(task)
        burst = [measured(FAMILY.config({}), 5.0), measured(FAMILY.config({}), 5.0, stage="final")]
        bad.report(task, burst, ended="done")
        own_store.set_bests([Best(PROBLEM, DEVICE, "cuda", kept, None, None, None, 1, {})])
        feed = Feed(own_store, Workers(own_store, PATIENT), ProgressBoard())
        feed.poll()
        with TestClient(create_app(own_store)) as client:
            said = [client.get("/v1/best", params=ASKED).json()]
            revocations.revoke(own_store, worker="worker-1")
            client.app.state.follower.poll()  # type: ignore[attr-defined]
            said.append(client.get("/v1/best", params=ASKED).json())
        assert [one["evidence"]["measurement_id"] for one in said] == [kept.id] * 2
        assert len(own_store.bests_by_policy(DEVICE)) == 1
        told = [event.data for event in feed.poll() if event.name == "best"]
        assert [each.get("removed", False) for each in told] == [True, False]

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
            for policy in Policy:
                asked = client.get("/v1/best", params=ASKED | {"policy": policy.value})
                assert (asked.status_code, asked.json()["source"] == "measured") == (200, False), policy

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


def test_what_is_required_to_be_measured_is_measured_under_the_named_policy(own_store: Store) -> None:
    keep_best(own_store)
    with TestClient(create_app(own_store)) as http:
        asked: list[dict[str, Any]] = [{"policy": "burst"}, {"policy": "rounds"}, {"neighbours": "pdl"}, {}]
        single = [http.get("/v1/best", params=ASKED | {"require": "measured"} | each) for each in asked]
        assert [found.status_code for found in single] == [200, 404, 200, 200]
        assert "256x256x256 was not measured under rounds" in single[1].json()["detail"]
        bodies = [{"problems": [ASKED], "require": "measured"} | each for each in asked]
        batches = [http.post("/v1/best:batch", json=body).json() for body in bodies]
        assert [found["unanswered"] for found in batches] == [[], [0], [], []]
        # The problem is measured: no campaign has to tune it.
        assert http.get("/v1/misses").json()["total"] == 0
        assert http.get("/v1/best", params=ASKED | {"policy": "rounds"}).json()["policy"] == "burst"


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
        copy_over(file, tmp_path / "earlier.db")
        keep_best(own_store, lost)
        assert known(client) == ["nearest", *sorted((lost.key, first.key))]
        copy_over(tmp_path / "earlier.db", file)
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
