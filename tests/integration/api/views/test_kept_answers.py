"""What a long-running service keeps of its answers is what it would answer had it just started."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from tests.fleet import Fleet
from tests.support import FAMILY, PROBLEM, keep_best, measured
from tuner.evidence import revocations
from tuner.evidence.store import Store


def test_a_study_that_ended_again_tells_the_new_reason(database_url: str) -> None:
    with Store.open(database_url) as store, TestClient(create_app(store)) as http:
        study = keep_best(store).winner.study_id

        def because() -> str:
            shown: str = http.get(f"/v1/studies/{study}").json()["study"]["stopped_because"]
            return shown

        store.finish_study(study, "the budget of 1 candidate is spent")
        assert because() == "the budget of 1 candidate is spent"
        store.reopen_study(study)
        store.finish_study(study, "all candidates were tried")
        assert because() == "all candidates were tried"


def test_a_study_learns_that_its_best_was_removed_long_after_the_revocation(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service's call that revokes replaces bests for some seconds; a later sweep does the rest."""
    with Store.open(database_url) as store, TestClient(create_app(store)) as http:
        fleet = Fleet(store)
        fleet.campaign([PROBLEM])
        hand = fleet.hand()
        task = hand.claimed()
        hand.begin(task)
        config = FAMILY.config({})
        hand.report(task, [measured(config), measured(config, stage="final")], ended="done")
        (best,) = store.bests()
        # A later change of the same problem, which stays.
        keep_best(store, device="NVIDIA H100 80GB HBM3")

        def served() -> list[bool]:
            finals = http.get(f"/v1/studies/{best.winner.study_id}").json()["finals"]
            return [final["served"] for final in finals]

        with monkeypatch.context() as no_time:
            no_time.setattr(revocations, "settle", lambda store, seconds: 0)
            revocations.revoke(store, worker="worker-0")
        assert served() == [True]
        revocations.settle(store)
        assert served() == [False]
