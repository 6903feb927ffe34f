"""What a long-running service keeps of its answers is what it would answer had it just started."""

from __future__ import annotations

from fastapi.testclient import TestClient

from api.app import create_app
from tests.support import keep_best
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
