"""What a bad worker told is found by its author, taken out of the running, and the best of what remains is served."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from typer.testing import CliRunner

from api.access import AccessPolicy
from api.app import create_app
from gemmtune.command import app as command
from space.devices import profile_named
from space.explain import is_legal
from tests.fleet import PROBLEMS, Fleet, Hand, facts, provenance
from tests.support import DEVICE, FAMILY, PROVENANCE, measured, study_key
from tuner.errors import StoreError, UnknownWorker
from tuner.evidence import bests, revocations, tokens
from tuner.evidence.physics import impossible
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results, rounds
from tuner.fleet.campaigns.records import RoundReport, RoundTask
from workers.measurement import Measurement, Policy

PROBLEM = PROBLEMS[0]
ASKED = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k}
FORGED, HONEST = (FAMILY.config({"tile_n": n}) for n in (64, 128))
FORBIDDEN = FAMILY.config({"tile_n": 256, "stages": 12})


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def taken(us: float, forged: bool) -> list[Measurement]:
    config = FORGED if forged else HONEST
    return [measured(config, us, PROBLEM), measured(config, us, PROBLEM, "final", samples=11)]


def tell(hand: Hand, us: float, forged: bool = False) -> None:
    """One round of a new campaign on one problem, whose worker reports finals of `us`."""
    hand._fleet.campaign([PROBLEM])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, taken(us, forged), ended="done")


def served_us(store: Store) -> float | None:
    best = store.best(PROBLEM, DEVICE)
    return best.median_us if best else None


def test_a_bad_workers_reports_leave_and_the_best_of_the_rest_is_served(store: Store) -> None:
    fleet = Fleet(store)
    good, bad = fleet.hand(0), fleet.hand(1)
    tell(good, 10.0)
    tell(bad, 5.0, forged=True)
    app = create_app(store)
    http = TestClient(app)
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["time_us"] == 5.0
    forged = store.page()[-1].id
    assert [each.id for each in store.finals_beside(forged)] == [forged]
    found = revocations.revoke(store, worker="worker-1", reason="its clock runs fast")
    assert store.finals_beside(forged) == []
    assert (found.measurements, found.bests) == (2, 1)
    assert served_us(store) == 10.0
    # Candidates that only the bad worker screened were not tried.
    assert [(best.tried, best.failed) for best in store.bests()] == [(1, {})]
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["time_us"] == 10.0
    assert [entry["median_us"] for entry in http.get(f"/v1/tables/{DEVICE}").json()["entries"]] == [10.0]
    # The rows stay, marked and with their author.
    stored = {each.author.worker_id: each.revoked for each in store.page()}
    assert stored == {good.id: False, bad.id: True}
    assert [each.measurement.config for each in store.every(DEVICE)] == [HONEST, HONEST]
    assert store.best_changes(PROBLEM, DEVICE)[-1].reason == "what worker worker-1 told was revoked"
    # What the study knew is not built upon.
    fleet.campaign([PROBLEM])
    task = good.claimed()
    assert good.begin(task).tried == []


@pytest.mark.parametrize("us", [9.0, 11.0])
def test_a_program_that_only_a_revoked_worker_had_run_is_new_to_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, us: float
) -> None:
    replaced = {0: PROVENANCE.kernel_source_digest}
    monkeypatch.setattr(
        "tests.fleet.provenance",
        lambda number: replace(provenance(number), kernel_source_digest=replaced.get(number, "e" * 64)),
    )
    fleet = Fleet(store)
    tell(fleet.hand(0), 10.0)
    tell(fleet.hand(1), 5.0, forged=True)
    revocations.revoke(store, worker="worker-1")
    assert served_us(store) == 10.0
    tell(fleet.hand(2), us)
    assert served_us(store) == us


def test_a_problem_without_other_evidence_loses_its_best(store: Store) -> None:
    bad = Fleet(store).hand(1)
    tell(bad, 5.0, forged=True)
    app = create_app(store)
    http = TestClient(app)
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["source"] == "measured"
    revocations.revoke(store, worker="worker-1")
    app.state.follower.poll()
    assert (store.bests(), store.best(PROBLEM, DEVICE)) == ([], None)
    assert http.get("/v1/best", params=ASKED | {"device": DEVICE}).json()["source"] == "predicted"
    assert http.get(f"/v1/tables/{DEVICE}").status_code == 404
    assert http.get("/", params={"device": DEVICE}).status_code == 200
    assert store.best_changes(PROBLEM, DEVICE)[-1].measurement_id is None
    # A service that starts now agrees, and new evidence counts again.
    fresh = create_app(store)
    fresh.state.follower.poll()
    assert len(fresh.state.follower.snapshot) == 0
    tell(bad, 7.0)
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["time_us"] == 7.0


def test_finals_that_rules_forbid_by_now_keep_no_revoked_best(store: Store) -> None:
    assert not is_legal(FAMILY, PROBLEM, FORBIDDEN)
    study = store.begin_study(study_key(PROBLEM))
    store.record_many(study.id, [measured(FORBIDDEN, 4.0, PROBLEM, "final", samples=11)], PROVENANCE)
    fleet = Fleet(store)
    tell(fleet.hand(0), 10.0)
    tell(fleet.hand(1), 5.0, forged=True)
    assert revocations.revoke(store, worker="worker-1").bests == 1
    assert served_us(store) == 10.0
    assert revocations.revoke(store, worker="worker-0").bests == 1
    assert served_us(store) is None


def test_a_replayed_best_shows_again_when_the_one_that_hid_it_is_gone(store: Store) -> None:
    study = store.begin_study(replace(study_key(PROBLEM), device_kind="recorded"))
    (replayed,) = store.record_many(study.id, taken(20.0, forged=False)[1:], PROVENANCE)
    store.set_bests([Best(PROBLEM, DEVICE, "recorded", replayed, None, None, None, 1, {})])
    tell(Fleet(store).hand(1), 5.0, forged=True)
    app = create_app(store)
    http = TestClient(app)
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["time_us"] == 5.0
    revocations.revoke(store, worker="worker-1")
    app.state.follower.poll()
    assert http.get("/v1/best", params=ASKED).json()["time_us"] == 20.0


def test_only_what_came_since_then_is_revoked(store: Store) -> None:
    hand = Fleet(store).hand(1)
    tell(hand, 10.0)
    later = datetime.now(UTC)
    tell(hand, 5.0, forged=True)
    assert revocations.revoke(store, worker="worker-1", since=later + timedelta(days=1)).measurements == 0
    assert revocations.revoke(store, worker="worker-1", since=later).measurements == 2
    assert served_us(store) == 10.0
    assert revocations.revoke(store, worker="worker-1", since=later).measurements == 0


def test_an_administrator_revokes_a_token_over_http_and_no_other_scope_may(store: Store) -> None:
    thief, _ = tokens.make(store, "thief", ["work"])
    fleet = Fleet(store)
    fleet.campaign([PROBLEM])
    worker = fleet.workers.register("w", facts(9), thief.id).worker_id
    task = fleet.rounds.claim(worker, thief.id)
    assert task is not None
    fleet.rounds.begin(task.round_id, task.lease, provenance(9), thief.id)
    report = RoundReport(tuple(taken(5.0, forged=True)), provenance(9), 0.0, ended="done")
    fleet.rounds.finish(task.round_id, task.lease, report, thief.id)
    assert served_us(store) == 5.0
    secrets = {scope: tokens.make(store, scope, [scope])[1] for scope in ("read", "submit", "work", "admin")}
    http = TestClient(create_app(store, AccessPolicy(tokens=True)))
    statuses = {
        scope: http.post("/v1/workers:revoke", json={"token": "thief"}, headers={"Authorization": f"Bearer {secret}"})
        for scope, secret in secrets.items()
    }
    assert {scope: response.status_code for scope, response in statuses.items()} == {
        "read": 403, "submit": 403, "work": 403, "admin": 200
    }  # fmt: skip
    assert statuses["admin"].json()["measurements"] == 2
    assert statuses["admin"].json()["made_by"] == "admin"
    assert served_us(store) is None


def test_the_command_revokes_and_refuses_names_that_nobody_has(store: Store, database_url: str) -> None:
    tell(Fleet(store).hand(1), 5.0, forged=True)
    words = ["worker", "revoke", "worker-1", "--since", "2020-01-01", "--db", database_url, "--json"]
    said = CliRunner().invoke(command, words, catch_exceptions=False)
    assert (json.loads(said.stdout)["measurements"], served_us(store)) == (2, None)
    for wrong in ({"worker": "nobody"}, {"token": "nothing"}, {}, {"worker": "a", "token": "b"}):
        with pytest.raises(UnknownWorker):
            revocations.revoke(store, **wrong)  # type: ignore[arg-type]


def about_to_end(store: Store) -> tuple[Hand, RoundTask]:
    """A hand that has told forged finals, and the round in which its study ends."""
    hand = Fleet(store).hand(1)
    hand._fleet.campaign([PROBLEM])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, taken(5.0, forged=True))
    task = hand.claimed()
    hand.begin(task)
    return hand, task


def test_what_is_revoked_while_its_study_ends_does_not_become_best(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand, task = about_to_end(store)
    decide = rounds.verdict

    def revoked_meanwhile(*given: Any) -> Any:  # noqa: ANN401  (as `verdict`)
        revocations.revoke(store, worker="worker-1")
        return decide(*given)

    monkeypatch.setattr(rounds, "verdict", revoked_meanwhile)
    hand.report(task, (), ended="done")
    assert (served_us(store), store.counts()["best"]) == (None, 0)


def test_a_study_whose_finals_were_revoked_does_not_end_with_one_of_them(store: Store) -> None:
    hand, task = about_to_end(store)
    revocations.revoke(store, worker="worker-1")
    hand.report(task, (), ended="done")
    problems = results.progress(store, 1).problems
    assert (problems["done"], problems["waiting"]) == (0, 1)


def test_a_study_that_began_after_a_revocation_goes_on_when_older_reports_are_revoked(store: Store) -> None:
    fleet = Fleet(store)
    for number in (0, 1):
        tell(fleet.hand(number), 10.0 + number, forged=number == 1)
    revocations.revoke(store, worker="worker-1")
    honest = fleet.hand(2)
    tell(honest, 12.0)
    revocations.revoke(store, worker="worker-0")
    fleet.campaign([PROBLEM])
    task = honest.claimed()
    past = fleet.rounds.begin(task.round_id, task.lease, provenance(2))
    assert [trial.config for trial in past.tried] == [HONEST]
    assert served_us(store) == 12.0


def test_finals_that_no_kernel_could_reach_replace_no_revoked_best(store: Store) -> None:
    study = store.begin_study(study_key(PROBLEM))
    (fast,) = store.record_many(study.id, [measured(HONEST, 0.002, PROBLEM, "final", samples=11)], PROVENANCE)
    assert impossible(PROBLEM, profile_named(DEVICE), fast.measurement)
    fleet = Fleet(store)
    for number, us in enumerate((10.0, 5.0)):
        tell(fleet.hand(number), us, forged=number == 1)
    revocations.revoke(store, worker="worker-1")
    assert served_us(store) == 10.0


def unknown(store: Store, table: str, key: str) -> None:
    """Renames a problem or a config to one of another version, past all of our code."""
    with store.transaction(writes=True) as session:
        if store.embedded:
            session.execute(text(f"DROP TRIGGER {table}_fixed"))
        else:
            session.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        session.execute(text(f"UPDATE {table} SET key = 'later' || key WHERE key = :key"), {"key": key})


def test_a_final_of_another_version_keeps_no_revoked_best(store: Store) -> None:
    fleet = Fleet(store)
    other, good, bad = (fleet.hand(number) for number in range(3))
    fleet.campaign([PROBLEM])
    task = other.claimed()
    other.begin(task)
    later = FAMILY.config({"tile_n": 192})
    told = [measured(later, 9.0, PROBLEM), measured(later, 9.0, PROBLEM, "final", samples=11)]
    other.report(task, told, ended="done")
    tell(good, 10.0)
    tell(bad, 5.0, forged=True)
    unknown(store, "config", later.key)
    assert revocations.revoke(store, worker="worker-2").bests == 1
    assert served_us(store) == 10.0


def test_a_best_of_another_version_under_a_second_policy_keeps_no_revoked_one(store: Store) -> None:
    tell(Fleet(store).hand(1), 5.0, forged=True)
    later = FAMILY.config({"tile_n": 192})
    study = store.begin_study(study_key(PROBLEM), fresh=True)
    hot = measured(later, 9.0, PROBLEM, "final", samples=11, policy=Policy.SUSTAINED)
    stored = store.record(study.id, hot, PROVENANCE)
    store.set_bests([Best(PROBLEM, DEVICE, "cuda", stored, None, None, None, 1, {})])
    unknown(store, "config", later.key)
    revocations.revoke(store, worker="worker-1")
    assert store.counts()["best"] == 1
    assert store.best_changes(PROBLEM, DEVICE)[-1].measurement_id is None


def test_a_problem_of_another_version_holds_up_no_revocation(store: Store) -> None:
    fleet = Fleet(store)
    hand = fleet.hand(1)
    for problem in (PROBLEM, PROBLEMS[1]):
        fleet.campaign([problem])
        task = hand.claimed()
        hand.begin(task)
        told = [measured(FORGED, 500.0, problem), measured(FORGED, 500.0, problem, "final", samples=11)]
        hand.report(task, told, ended="done")
    unknown(store, "problem", PROBLEM.key)
    found = revocations.revoke(store, worker="worker-1")
    assert (found.measurements, found.bests, store.best(PROBLEMS[1], DEVICE)) == (4, 1, None)
    # The unknown one is left to a version that knows it.
    assert (revocations.settle(store), store.counts()["best"]) == (0, 1)


def test_what_is_revoked_while_a_best_is_stored_does_not_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Fleet(store).hand(1)
    hand._fleet.campaign([PROBLEM])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, taken(5.0, forged=True))
    (final,) = (each for each in store.page() if each.measurement.stage == "final")
    serve = bests.serve
    revoking = threading.Thread(target=revocations.revoke, args=(store,), kwargs={"worker": "worker-1"})

    def served_meanwhile(*given: Any) -> None:  # noqa: ANN401  (as `serve`)
        revoking.start()
        # It has to wait for this transaction; without that it would end at once.
        revoking.join(0.5)
        serve(*given)

    monkeypatch.setattr(bests, "serve", served_meanwhile)
    store.set_bests([Best(PROBLEM, DEVICE, "cuda", final, None, None, None, 1, {})])
    revoking.join()
    assert (served_us(store), store.counts()["best"]) == (None, 0)


def test_two_revocations_at_once_serve_nothing_that_either_revoked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(store)
    tell(fleet.hand(0), 10.0)
    tell(fleet.hand(1), 5.0, forged=True)
    remaining = revocations.remaining_bests

    def other_meanwhile(*given: Any) -> dict[str, Best]:  # noqa: ANN401  (as `remaining_bests`)
        monkeypatch.setattr(revocations, "remaining_bests", remaining)
        found = remaining(*given)
        revocations.revoke(store, worker="worker-0")
        return found

    monkeypatch.setattr(revocations, "remaining_bests", other_meanwhile)
    revocations.revoke(store, worker="worker-1")
    assert (served_us(store), store.counts()["best"]) == (None, 0)


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_outside_of_the_calendar_is_refused_by_its_field(store: Store, since: str) -> None:
    http = TestClient(create_app(store), raise_server_exceptions=False)
    told = [http.post("/v1/workers:revoke", json={"token": "x", "since": since}),
            http.get("/v1/rounds", params={"since": since})]  # fmt: skip
    refused = [(each.status_code, each.json()["errors"][0]["pointer"]) for each in told]
    assert refused == [(422, "/since"), (422, "since")]


def test_a_revocation_cut_short_is_completed_by_a_service(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(store)
    tell(fleet.hand(1), 5.0, forged=True)
    monkeypatch.setattr(revocations, "_SECONDS", -1.0)
    assert revocations.revoke(store, worker="worker-1").bests == 0
    assert served_us(store) == 5.0
    fleet.sweeper.sweep()
    assert served_us(store) is None


def test_a_card_that_is_known_at_last_is_served(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = store.begin_study(study_key(PROBLEM))
    store.record_many(study.id, taken(10.0, forged=False), PROVENANCE)
    # As if the finals had been quarantined by a version that did not know the card.
    assert store.bests() == []
    Fleet(store).sweeper.sweep()
    assert served_us(store) == 10.0
    assert store.best_changes(PROBLEM, DEVICE)[-1].reason == "the card is known now"


def test_the_database_keeps_revocations(store: Store) -> None:
    tell(Fleet(store).hand(1), 5.0, forged=True)
    revocations.revoke(store, worker="worker-1")
    for change in ("DELETE FROM revoked_measurement", "UPDATE revocation SET reason = 'x'"):
        with pytest.raises(StoreError), store.transaction(writes=True) as session:
            session.execute(text(change))
