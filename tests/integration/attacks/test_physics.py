"""Numbers that no kernel, no clock or no known card gives: refused, quarantined, and harmless where they are stored."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.app import create_app
from gemmtune.command import app
from space.devices import find_profile, profile_named
from space.errors import FamilyError
from space.family import families_for
from space.kinds.gemm import Gemm
from space.plug import Family
from space.rank import roofline_us
from tests.fleet import Fleet, facts, provenance
from tests.support import DEVICE, FACTS, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.errors import ResultRefused
from tuner.evidence.physics import impossible, quarantined
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import measurement_document
from tuner.fleet.campaigns.checks import check_measurements
from tuner.fleet.campaigns.records import CampaignRequest, RoundReport
from tuner.tables.tables import table
from workers.measurement import Measurement, Outcome

LARGE = Gemm.parse("4096x4096x4096")
CARDS = ("NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA H20", "NVIDIA H100 80GB HBM3 (350 W)")
UNKNOWN = "NVIDIA H300 Imaginary"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


FIVE_CARDS = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA B200", UNKNOWN)


def samples(*times_us: float, family: Family = FAMILY) -> Measurement:
    return replace(measured(family.config({}), problem=LARGE), samples_us=times_us)


def forged(bound_us: float) -> list[tuple[tuple[float, ...], str]]:
    """Samples that no kernel gives on a card with this bound, and what is said of them."""
    return [
        ((bound_us / 3,) * 3, "no kernel is that fast"),
        ((1e-300,) * 3, "no kernel is that fast"),
        ((1e300,) * 3, "a clock measures"),
        ((bound_us, bound_us, bound_us * 25), "a factor of 20 apart"),
        ((1e-9, bound_us, bound_us), "a clock measures"),
    ]


@pytest.mark.parametrize("card", CARDS)
def test_forged_times_are_refused_on_every_card(card: str) -> None:
    profile = profile_named(card)
    bound = roofline_us(LARGE, profile)
    # A worker that counts its own multiprocessors as fewer would make any time possible.
    honest = replace(FACTS, name=card, sm_count=profile.sm_count)
    for worker in (honest, replace(honest, sm_count=1)):
        check_measurements([samples(bound, bound, bound)], LARGE, worker)
        for times, said in forged(bound):
            with pytest.raises(ResultRefused, match=said):
                check_measurements([samples(*times)], LARGE, worker)


@pytest.mark.parametrize("worst", [math.nan, -math.inf, -1.0])
@pytest.mark.parametrize("outcome", [Outcome.CORRECT, Outcome.WRONG_RESULT])
def test_an_error_that_is_no_number_or_negative_is_refused(outcome: Outcome, worst: float) -> None:
    forged = samples(*[1e3] * 3)
    assert forged.verification is not None
    check = replace(forged.verification, worst_ratio=worst, mismatches=int(outcome is Outcome.WRONG_RESULT))
    with pytest.raises(ResultRefused, match="worst_ratio"):
        check_measurements([replace(forged, outcome=outcome, verification=check)], LARGE, FACTS)


@pytest.mark.parametrize("card", FIVE_CARDS)
def test_forged_times_reach_no_answer_on_five_cards(store: Store, card: str) -> None:
    """Refused where the card is known, refused as well where no kernel is built for it, quarantined where it is not."""
    known = find_profile(card)
    arch, sm_count = (known.arch.name, known.sm_count) if known else (FACTS.arch, FACTS.sm_count)
    bound = roofline_us(LARGE, known or profile_named("NVIDIA H200"))
    for times, said in forged(bound):
        if known:
            assert said in impossible(LARGE, known, samples(*times))
    fleet, device = Fleet(store), replace(facts(), name=card, arch=arch, sm_count=sm_count)
    try:
        family = families_for(arch, LARGE)[0]
    except FamilyError:
        with pytest.raises(FamilyError, match=f"no kernel family is built for {arch}"):
            fleet.workers.register("forger", device)
        return
    worker = fleet.workers.register("forger", device).worker_id
    fleet.campaigns.create(CampaignRequest("five cards", (LARGE,), ((card, "cuda"),)))
    task = fleet.rounds.claim(worker)
    assert task is not None
    origin = replace(provenance(), device=card)
    fleet.rounds.begin(task.round_id, task.lease, origin)
    for times, said in forged(bound):
        final = replace(samples(*times, family=family), stage="final")
        if known:
            with pytest.raises(ResultRefused, match=said):
                fleet.rounds.finish(task.round_id, task.lease, RoundReport((final,), origin, ended="forged"))
    taken = replace(samples(bound, bound, bound, family=family), stage="final")
    fleet.rounds.finish(task.round_id, task.lease, RoundReport((taken,), origin, ended="done"))
    assert store.counts()["measurement"] == 1
    assert len(store.bests(card)) == (1 if known else 0)
    assert bool(quarantined(card)) is not bool(known)


def test_what_an_unknown_card_measures_is_stored_and_never_served(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    http = TestClient(create_app(store), raise_server_exceptions=False)
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    campaign = {"name": "x", "problems": [{"m": 256, "n": 256, "k": 256}], "devices": [{"name": UNKNOWN}]}
    fleet = Fleet(store)
    worker = http.post("/v1/workers", json={"name": "n", "facts": asdict(replace(facts(), name=UNKNOWN))})
    assert worker.status_code == 201
    made = http.post("/v1/campaigns", json=campaign)
    assert made.status_code == 201, made.json()
    task = http.post(f"/v1/workers/{worker.json()['worker_id']}:claim").json()
    origin = asdict(replace(provenance(), device=UNKNOWN))
    begin = {"lease": task["lease"], "provenance": origin}
    assert http.post(f"/v1/rounds/{task['round_id']}:begin", json=begin).status_code == 200
    taken = [measured(FAMILY.config({}), 10.0, PROBLEM, stage) for stage in ("screen", "final")]  # type: ignore[arg-type]
    report = {"lease": task["lease"], "problem_key": task["problem_key"], "provenance": origin, "ended": "done",
              "measurements": [measurement_document(each) for each in taken]}  # fmt: skip
    assert http.post(f"/v1/rounds/{task['round_id']}:finish", json=report).status_code == 204
    assert (store.counts()["measurement"], store.counts()["best"], store.bests()) == (2, 0, [])
    problem = http.get("/v1/campaigns/1/problems").json()["items"][0]
    assert problem["status"] == "parked"
    assert problem["reason"].startswith(f"quarantined: no profile of {UNKNOWN!r} is known")
    assert "no profile of" in caplog.text
    answer = http.get("/v1/best", params={"m": 256, "n": 256, "k": 256, "device": UNKNOWN})
    assert answer.status_code == 422
    assert "stored, never served" in answer.json()["detail"]
    fleet.sweeper.sweep()


def plant(store: Store, times: str) -> None:
    """Makes a measurement with impossible samples the best of a problem, past all of our code."""
    best = keep_best(store)
    with store.transaction(writes=True) as session:
        columns = [column["name"] for column in sa.inspect(session.connection()).get_columns("measurement")]
        others = ", ".join(name for name in columns if name not in ("id", "samples_us", "median_us", "series"))
        number = session.scalar(
            sa.text(
                f"INSERT INTO measurement (samples_us, median_us, series, {others}) "
                f"SELECT '{times}', 1e-300, 7, {others} FROM measurement WHERE id = :id RETURNING id"
            ),
            {"id": best.winner.id},
        )
        ratio = json.dumps({"value": 1e300, "low": 0.0, "high": 1e308, "paired": True})
        session.execute(
            sa.text("UPDATE best SET measurement_id = :id, versus_first = :ratio, version = 2"),
            {"id": number, "ratio": ratio},
        )
        session.execute(sa.text("UPDATE counter SET value = 2 WHERE name = 'best'"))


@pytest.mark.parametrize("times", ["[1e-300, 1e-300]", "[1e300, 1e300]", "[1e-308]", "[10.0, 1e-300]", "[]", "[0.0]"])
def test_no_stored_value_breaks_a_page_or_an_answer(store: Store, database_url: str, times: str) -> None:
    plant(store, times)
    keep_best(store, LARGE, us=200.0)
    http = TestClient(create_app(store), raise_server_exceptions=False)
    http.app.state.follower.poll()  # type: ignore[attr-defined]
    asked = {"m": 256, "n": 256, "k": 256}

    def get(path: str, **params: Any) -> Any:  # noqa: ANN401  (JSON)
        response = http.get(path, params=params)
        assert response.status_code == 200, (path, response.text)
        json_type = response.headers["content-type"].startswith("application/json")
        return json.loads(response.content, parse_constant=pytest.fail) if json_type else None

    get("/")
    get("/", device=DEVICE, **asked)
    answer = get("/v1/best", **asked)
    assert answer["source"] != "measured"
    assert http.get("/v1/best", params=asked | {"require": "measured"}).status_code == 404
    batch = http.post("/v1/best:batch", json={"problems": [asked]})
    assert (batch.status_code, batch.json()["items"][0]["source"]) == (200, answer["source"])
    assert len(get("/v1/bests", device=DEVICE)["items"]) == 1
    by_http = get(f"/v1/tables/{DEVICE}")
    ids = [item["id"] for item in get("/v1/measurements")["items"]]
    for one, other in product(ids, ids):
        assert http.get(f"/v1/measurements/{one}/versus/{other}").status_code in (200, 404, 409)
    get("/v1/devices")
    get("/v1/best/history", **asked)
    get("/metrics")
    assert http.get("/v1/importance", params=asked).status_code in (200, 404)
    assert [best.problem for best in store.bests()] == [LARGE]
    assert store.best(PROBLEM, DEVICE) is None
    shell = CliRunner()
    for command in (["best", "256x256x256", "--json"], ["best", "256x256x256", "--history"]):
        assert shell.invoke(app, [*command, "--db", database_url], catch_exceptions=False).exit_code == 0
    assert json.loads(json.dumps(table(store, DEVICE))) == by_http


def test_a_planted_best_is_replaced_by_an_honest_one(store: Store) -> None:
    plant(store, "[1e-300]")
    study = store.begin_study(study_key(), fresh=True)
    stored = store.record(study.id, measured(FAMILY.config({}), 30.0), PROVENANCE)
    assert store.set_bests([replace(keep_best(store, LARGE, us=200.0), problem=PROBLEM, winner=stored)]) == []
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    assert best.median_us == 30.0
