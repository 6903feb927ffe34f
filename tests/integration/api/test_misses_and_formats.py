"""Questions without a measured answer are counted and become campaigns; tables leave in formats behind a guard."""

from __future__ import annotations

import csv
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet
from typer.testing import CliRunner

from api import table_formats
from api.app import create_app
from gemmtune import Client
from gemmtune.command import app
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.integration.api.asking import ASKED, problem_of, serving
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.evidence import measurements, misses, revocations, tokens
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Author, Best, Policy, Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.client import LocalCampaigns
from tuner.fleet.campaigns.records import TIMING, CampaignRequest
from tuner.tables.library import library_table

OTHER = {"m": 300, "n": 512, "k": 320}


def ask(http: TestClient, *questions: dict[str, int]) -> None:
    for question in questions:
        http.get("/v1/best", params=question | {"device": DEVICE}).raise_for_status()


def listed(http: TestClient, **query: str) -> list[tuple[int, int]]:
    """M and count of every miss, after writing them down."""
    app: Any = http.app
    app.state.misses.write()
    items = http.get("/v1/misses", params=query).raise_for_status().json()["items"]
    return [(item["problem"]["m"], item["count"]) for item in items]


def follow(http: TestClient) -> None:
    app: Any = http.app
    app.state.follower.poll()


class TestMisses:
    def test_they_are_counted_until_they_are_measured(self, http: TestClient, store: Store) -> None:
        ask(http, ASKED, OTHER, OTHER)
        batch = {"device": DEVICE, "problems": [OTHER, ASKED | {"k": 999}]}
        http.post("/v1/best:batch", json=batch).raise_for_status()
        assert listed(http) == [(300, 3), (256, 1), (256, 1)]
        keep_best(store, PROBLEM, DEVICE)
        follow(http)
        ask(http, ASKED)
        assert listed(http, limit="1") == [(300, 3)]
        assert http.get("/v1/misses", params={"limit": "1"}).json()["total"] == 2
        assert listed(http, device="NVIDIA L40S") == []

    def test_what_was_measured_on_another_card_is_still_missed(self, store: Store) -> None:
        keep_best(store, PROBLEM, DEVICE)
        misses.add(store, {(PROBLEM.key, device): 1 for device in (DEVICE, "NVIDIA L40S")})
        found, total = misses.page(store)
        assert ([miss.device for miss in found], total) == (["NVIDIA L40S"], 1)

    def test_a_miss_says_when_it_was_asked_first_and_last(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problems = [Gemm.of(m, 256, 256) for m in (64, 128)]
        for problem in (*problems, problems[0]):
            misses.add(store, {(problem.key, DEVICE): 1})
        often, once = misses.page(store)[0]
        assert (often.problem, often.count) == (problems[0], 2)
        assert often.first_at < once.first_at == once.last_at < often.last_at
        # Of those asked as often, the one that was not asked for longest is dropped.
        misses.add(store, {(problems[1].key, DEVICE): 1})
        monkeypatch.setattr(misses, "MOST_MISSES", 1)
        misses.add(store, {})
        assert [miss.problem for miss in misses.page(store)[0]] == [problems[1]]

    def test_questions_that_accept_only_measurements_are_counted(self, http: TestClient) -> None:
        for device in (DEVICE, "a card that nobody knows"):
            asked = OTHER | {"device": device, "require": "measured"}
            problem_of(http.get("/v1/best", params=asked), 404, "not-measured")
            batch = {"problems": [OTHER], "device": device, "require": "measured"}
            assert http.post("/v1/best:batch", json=batch).json()["unanswered"] == [0]
        assert listed(http) == [(300, 2)]

    def test_those_asked_least_are_dropped(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(misses, "MOST_MISSES", 2)
        keys = [Gemm(m, 64, 64).key for m in (1, 2, 3)]
        misses.add(store, {(keys[0], DEVICE): 5, (keys[1], DEVICE): 1})
        misses.add(store, {(keys[2], DEVICE): 3, (keys[1], DEVICE): 1})
        found, total = misses.page(store)
        assert ([miss.count for miss in found], total) == ([5, 3], 2)

    def test_a_wrong_query_is_refused(self, http: TestClient) -> None:
        problem_of(http.get("/v1/misses", params={"limit": "0"}), 422, "malformed-request")

    def test_a_client_and_a_campaign_read_them(self, http: TestClient, store: Store) -> None:
        ask(http, OTHER)
        assert listed(http) == [(300, 1)]
        (local,) = LocalCampaigns(store, TIMING).misses(DEVICE)
        with serving(create_app(store)) as url, Client(url) as client:
            (remote,) = client.misses(DEVICE)
        assert (local["problem"]["key"], local["count"]) == (remote["problem"]["key"], remote["count"])


class TestCounts:
    def test_counts_order_a_campaign_by_what_it_may_gain(self, http: TestClient) -> None:
        small, often, large = ({"m": m, "n": 256, "k": 256} for m in (16, 32, 8192))
        body = {"name": "counted", "devices": [{"name": DEVICE}],
                "problems": [small, often | {"count": 10_000}, large | {"count": 2}]}  # fmt: skip
        campaign = http.post("/v1/campaigns", json=body).raise_for_status().json()["id"]
        found = http.get(f"/v1/campaigns/{campaign}/problems").json()["items"]
        assert [(item["problem"]["m"], item["count"]) for item in found] == [(32, 10_000), (8192, 2), (16, 1)]
        assert http.get(f"/v1/campaigns/{campaign}/summary").json()["won"] is None

    def test_a_problem_that_is_listed_twice_counts_twice_as_in_a_file(self, http: TestClient) -> None:
        once, twice = ({"m": m, "n": 256, "k": 256} for m in (16, 17))
        body = {"name": "listed", "devices": [{"name": DEVICE}], "problems": [once, twice, twice],
                "ladders": ["m=17 n=256 k=256"]}  # fmt: skip
        campaign = http.post("/v1/campaigns", json=body).raise_for_status().json()["id"]
        found = http.get(f"/v1/campaigns/{campaign}/problems").json()["items"]
        assert [(item["problem"]["m"], item["count"]) for item in found] == [(17, 2), (16, 1)]

    def test_without_counts_the_order_stays(self, store: Store) -> None:
        problems = tuple(Gemm(m, 64, 64) for m in (1, 512, 2))
        request = CampaignRequest("plain", problems, ((DEVICE, "cuda"),))
        campaign, _ = Campaigns(store).create(request)
        rows = LocalCampaigns(store, TIMING).problems(campaign.id, None)
        assert [row["problem"]["m"] for row in rows] == [1, 512, 2]


class TestFormats:
    @pytest.fixture(autouse=True)
    def bests(self, http: TestClient, store: Store) -> None:
        """One that is surely faster, one that is not."""
        keep_best(store, PROBLEM, DEVICE)
        slow = keep_best(store, Gemm.parse("512x512x512"), DEVICE)
        store.set_bests([replace(slow, versus_first=Ratio(1.0, 0.9, 1.1, True))])
        follow(http)

    def test_csv_and_parquet_say_what_the_library_keeps(self, http: TestClient) -> None:
        text = http.get(f"/v1/tables/{DEVICE}", params={"format": "csv", "min_gain": "1.0"})
        assert text.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(text.text)))
        assert len(rows) == 2
        packed = http.get(f"/v1/tables/{DEVICE}", params={"format": "parquet"})
        assert parquet.read_table(io.BytesIO(packed.content)).num_rows == 2
        assert text.headers["etag"] != packed.headers["etag"]

    def test_a_margin_begins_at_nothing_as_the_commands_does(self, http: TestClient) -> None:
        few, all_bests = (
            http.get(f"/v1/tables/{DEVICE}", params={"min_gain": least}).json()["entries"] for least in (0.95, 0)
        )
        assert (len(few), len(all_bests)) == (1, 2)
        for least in (-0.1, 100.5, "nan"):
            problem_of(http.get(f"/v1/tables/{DEVICE}", params={"min_gain": least}), 422, "malformed-request")

    def test_guarded_json_counts_what_it_leaves_out(self, http: TestClient) -> None:
        document = http.get(f"/v1/tables/{DEVICE}", params={"min_gain": "1.02"}).json()
        assert len(document["entries"]) + len(document["library"]) == 2
        assert sum(document["left_out"].values()) == len(document["library"])
        assert "library" not in http.get(f"/v1/tables/{DEVICE}").json()
        # A format that is asked for is an export.
        assert http.get(f"/v1/tables/{DEVICE}", params={"format": "json"}).json() == document

    def test_each_format_has_an_etag_until_the_table_changes(self, http: TestClient, store: Store) -> None:
        about = {"format": "csv"}
        etag = http.get(f"/v1/tables/{DEVICE}", params=about).headers["etag"]
        again = http.get(f"/v1/tables/{DEVICE}", params=about, headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        keep_best(store, Gemm.parse("1024x512x512"), DEVICE)
        follow(http)
        assert http.get(f"/v1/tables/{DEVICE}", params=about, headers={"If-None-Match": etag}).status_code == 200

    def test_what_a_format_needs_is_named(self, http: TestClient) -> None:
        params = {"format": "tunableop"}
        problem_of(http.get(f"/v1/tables/{DEVICE}", params=params), 404, "unknown-device")
        problem_of(http.get(f"/v1/tables/{DEVICE}", params={"format": "xml"}), 422, "malformed-request")
        problem_of(http.get("/v1/tables/nothing", params={"format": "csv"}), 404, "unknown-device")

    def test_one_at_a_time_is_written(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a large table each takes a multiple of its size."""
        writing, most, write = Semaphore(1), list[bool](), table_formats._rendered

        def alone(*about: Any) -> Any:  # noqa: ANN401
            most.append(writing.acquire(blocking=False))
            time.sleep(0.05)
            try:
                return write(*about)
            finally:
                writing.release()

        monkeypatch.setattr(table_formats, "_rendered", alone)
        with serving(create_app(store)) as url, Client(url) as client, ThreadPoolExecutor() as threads:
            gains = [1.0 + place / 100 for place in range(4)]
            list(threads.map(lambda gain: client.table_as(DEVICE, "csv", min_gain=gain), gains))
        assert most == [True] * 4

    def test_a_client_gets_files(self, store: Store) -> None:
        with serving(create_app(store)) as url, Client(url) as client:
            assert json.loads(client.table_as(DEVICE, "json", min_gain=1.02))["min_gain"] == 1.02

    def test_neighbours_that_let_a_kernel_start_early_have_the_table_of_the_export(
        self, http: TestClient, store: Store, tmp_path: Path
    ) -> None:
        problem = Gemm.parse("16x2112x7168")

        def keep(us: float, policy: Policy, pdl: int) -> None:
            study = store.begin_study(study_key(problem), fresh=True)
            kept = store.record(study.id, measured(FAMILY.config({"pdl": pdl}), us, problem, policy=policy), PROVENANCE)
            store.set_bests([Best(problem, DEVICE, "cuda", kept, Ratio(1.1, 1.05, 1.15, True), None, None, 1, {})])

        def times() -> list[float]:
            found = http.get(f"/v1/tables/{DEVICE}", params={"min_gain": "1", "neighbours": "pdl"}).raise_for_status()
            return [each["median_us"] for each in found.json()["entries"] if each["problem"]["key"] == problem.key]

        keep(10.0, Policy.CHAIN, 0)
        follow(http)
        assert times() == [10.0]
        keep(9.5, Policy.CHAIN_PDL, 1)
        # Nothing that is served has changed.
        assert times() == [9.5]
        with serving(create_app(store)) as url, Client(url) as client:
            early, plain = (client.table_as(DEVICE, "csv", neighbours=which) for which in ("pdl", "plain"))
        assert early != plain
        out = tmp_path / "early.csv"
        asked = ["export", "--device", DEVICE, "--format", "csv", "--neighbours", "pdl", "--out", str(out)]
        assert CliRunner().invoke(app, [*asked, "--db", f"sqlite:///{tmp_path}/store.db"]).exit_code == 0
        assert out.read_bytes() == early
        library = {"format": "tunableop", "torch": "2.14.1", "neighbours": "pdl"}
        problem_of(http.get(f"/v1/tables/{DEVICE}", params=library), 422, "bad-input")


def test_the_librarys_table_is_of_the_finals_that_a_best_won(store: Store) -> None:
    library = family_named("cublaslt")
    study = store.begin_study(study_key())

    def finals(us: float, *ranks: int) -> None:
        configs = [FAMILY.config({}), *(library.config({"rank": rank}) for rank in ranks)]
        taken = [measured(config, us + place, stage="final") for place, config in enumerate(configs)]
        store.set_bests(bests_of(PROBLEM, store.record_many(study.id, taken, PROVENANCE), 3, {}))

    finals(10.0, 0, 3)
    won = library_table(store, DEVICE)
    finals(10.5, 0, 5)
    assert library_table(store, DEVICE) == won
    store.record(study.id, measured(FAMILY.config({"stages": 3})), PROVENANCE)
    assert library_table(store, DEVICE) == won


def test_the_librarys_table_has_no_algorithm_that_loses_under_another_policy(store: Store) -> None:
    """Its first choice is what the user has: nothing that leaves is slower than that, however a program runs."""
    library, problem = family_named("cublaslt"), Gemm.parse("16x2112x7168")
    configs = [FAMILY.config({}), *(library.config({"rank": rank}) for rank in (0, 3, 5))]
    times = {Policy.CHAIN: (9.0, 10.0, 9.5, 9.7), Policy.SUSTAINED: (9.0, 10.0, 11.0, 9.7)}
    taken = [
        measured(config, us, problem, "final", policy=policy)
        for policy, each in times.items() for config, us in zip(configs, each, strict=True)
    ]  # fmt: skip
    stored = store.record_many(store.begin_study(study_key(problem)).id, taken, PROVENANCE)
    store.set_bests(bests_of(problem, stored, 3, {}))
    (entry,) = (each for each in library_table(store, DEVICE)["entries"] if each["problem"]["key"] == problem.key)
    assert (entry["policy"], entry["config"]["knobs"]["rank"]) == ("chain", 5)
    assert entry["versus_cublaslt_first"]["value"] == pytest.approx(10.0 / 9.7)


def test_a_file_without_rows_has_the_bytes_of_the_commands(tmp_path: Path) -> None:
    url, out, ranked = f"sqlite:///{tmp_path}/s.db", tmp_path / "t.csv", Gemm.of(24, 4096, 4096)
    with Store.open(url) as store:
        configs = [FAMILY.config({}), *(family_named("cublaslt").config({"rank": rank}) for rank in (0, 3))]
        taken = [measured(config, us, ranked, "final") for config, us in zip(configs, (9.0, 12.0, 10.0), strict=True)]
        stored = store.record_many(store.begin_study(study_key(ranked)).id, taken, PROVENANCE)
        store.set_bests(bests_of(ranked, stored, 3, {}))
        with TestClient(create_app(store)) as http:
            asked = {"format": "tunableop", "torch": "2.14.1"}
            told = http.get(f"/v1/tables/{DEVICE}", params=asked).raise_for_status().content
    words = ["export", "--out", str(out), "--device", DEVICE, "--db", url, "--format", "tunableop", "--torch", "2.14.1"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert told == (tmp_path / "t0.csv").read_bytes()


def test_the_librarys_table_lists_nothing_revoked_before_bests_are_replaced(
    http: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was asked for is kept, and bests are replaced by a sweep some time after they were revoked."""
    number, problem = tokens.make(store, "node", ["work"])[0].id, Gemm.of(24, 4096, 4096)
    study, library = store.begin_study(study_key(problem)), family_named("cublaslt")
    rebuilt = library.config({"algorithm": 66, "tile": 20, "stages": 36, "split_k": 1})
    timed = zip((FAMILY.config({}), library.config({}), rebuilt), (9.0, 12.0, 10.0), strict=True)
    taken = [measured(config, us, problem, "final") for config, us in timed]
    with store.transaction(writes=True) as session:
        place = replace(measurements.Place.of(session, study.id), author=Author(token_id=number))
        prepared = measurements.prepare(session, place, taken, PROVENANCE)
        stored = measurements.insert_prepared(session, prepared)
    store.set_bests(bests_of(problem, stored, 3, {}))
    follow(http)

    asked = {"format": "tunableop", "torch": "2.14.1"}
    assert "tn_4096_24_4096" in http.get(f"/v1/tables/{DEVICE}", params=asked).raise_for_status().text
    monkeypatch.setattr(revocations, "_SECONDS", -1.0)
    revocations.revoke(store, token="node")
    problem_of(http.get(f"/v1/tables/{DEVICE}", params=asked), 404, "unknown-device")
