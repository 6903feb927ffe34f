"""Where a campaign's winner is revoked, its results say so and claim no gain of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.app import create_app
from gemmtune.command import app as command
from tests.fleet import PROBLEMS, Fleet
from tuner.evidence import revocations
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """One campaign with a problem of each of two workers, both faster than the library."""
    with Store.open(database_url) as opened:
        fleet = Fleet(opened)
        fleet.campaign(PROBLEMS[:2])
        for number in (0, 1):
            hand = fleet.hand(number)
            hand.work(hand.claimed())
        yield opened


def said(*words: str) -> str:
    return CliRunner().invoke(command, ["campaign", *words], catch_exceptions=False).stdout


def test_a_revoked_winner_is_no_gain_and_is_marked(store: Store, database_url: str) -> None:
    before = results.summary(store, 1)
    assert before.gain is not None
    assert (before.gain.problems, before.revoked) == (2, 0)
    revocations.revoke(store, worker="worker-1")
    http = TestClient(create_app(store))
    found = http.get("/v1/campaigns/1/summary").json()
    assert (found["gain"]["problems"], found["revoked"]) == (1, 1)
    items = http.get("/v1/campaigns/1/problems").json()["items"]
    columns = http.get("/v1/campaigns/1/problems:columns").json()["columns"]
    assert [item["revoked"] for item in items] == columns["revoked"] == [False, True]
    assert "winners of 1 problem were revoked" in said("show", "1", "--db", database_url)
    assert said("results", "1", "--db", database_url).count("revoked") == 1


def test_a_campaign_whose_winners_are_all_revoked_claims_nothing(store: Store, database_url: str) -> None:
    for number in (0, 1):
        revocations.revoke(store, worker=f"worker-{number}")
    found = results.summary(store, 1)
    assert (found.gain, found.won, found.library_won, found.revoked) == (None, None, 0, 2)
    assert "no comparison is left" in said("show", "1", "--db", database_url)


def test_the_command_leaves_no_best_to_the_sweep_of_a_service(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocations, "_SECONDS", -1.0)
    CliRunner().invoke(command, ["worker", "revoke", "worker-1", "--db", database_url], catch_exceptions=False)
    assert [best.problem for best in store.bests()] == [PROBLEMS[0]]
