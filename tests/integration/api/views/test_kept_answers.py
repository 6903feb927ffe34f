"""What a long-running service keeps of its answers is what it would answer had it just started."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.kinds.gemm import Gemm
from tests.fleet import Fleet
from tests.restores import copy_over, put_in_place
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.evidence import revocations
from tuner.evidence.store import Store
from tuner.views import measurements

#: Enough for a statement about their knobs.
CONFIGS = [
    FAMILY.config({"tile_n": n, "stages": stages, "raster": raster})
    for n, stages, raster in itertools.product((64, 96, 128, 160), (2, 3, 4), ("along_m", "along_n"))
]


def screened(store: Store, us: float) -> None:
    """A study whose candidates took `us` microseconds, and one each more."""
    study = store.begin_study(study_key())
    taken = [measured(config, us + place) for place, config in enumerate(CONFIGS)]
    store.record_many(study.id, taken, PROVENANCE)


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


def test_nothing_of_a_store_is_told_once_another_is_restored_in_its_place(database_url: str, tmp_path: Path) -> None:
    """Its studies have the same numbers, and as much was measured."""
    with Store.open(f"sqlite:///{tmp_path}/theirs.db") as theirs:
        screened(theirs, 50.0)
        theirs.backup(tmp_path / "b.gz")
    with Store.open(database_url) as store, TestClient(create_app(store)) as http:
        screened(store, 20.0)

        def shown() -> tuple[float, float]:
            asked = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k, "device": DEVICE}
            return (http.get("/v1/studies/1").json()["study"]["best_us"],
                    http.get("/v1/importance", params=asked).json()["time_us"])  # fmt: skip

        assert shown() == (20.0, 20.0)
        put_in_place(tmp_path / "b.gz", database_url)
        assert shown() == (50.0, 50.0)


@pytest.mark.parametrize("restored", [True, False])
def test_columns_of_another_store_are_no_change_of_those_before(
    database_url: str, tmp_path: Path, restored: bool
) -> None:
    """A client that has the columns of the old store would keep them, and put the last change among them."""
    ours, theirs = Gemm(512, 256, 256), Gemm(1024, 256, 256)
    with Store.open(f"sqlite:///{tmp_path}/theirs.db") as other:
        for problem in (theirs, PROBLEM):
            keep_best(other, problem)
        other.backup(tmp_path / "b.gz")
        with Store.open(database_url) as store:
            keep_best(store, ours)
            asked = {"device": DEVICE}
            with TestClient(create_app(store)) as http:
                before = http.get("/v1/bests:columns", params=asked).json()
                assert before["columns"]["key"] == [ours.key]
                asked["after"] = before["version"]
                if restored:
                    put_in_place(tmp_path / "b.gz", database_url)
                    after = http.get("/v1/bests:columns", params=asked).json()
            if not restored:
                # The service was started anew, with another store.
                with TestClient(create_app(other)) as http:
                    after = http.get("/v1/bests:columns", params=asked).json()
    assert (after["changed"], sorted(after["columns"]["key"])) == (None, sorted([theirs.key, PROBLEM.key]))


@pytest.mark.parametrize("held", [True, False])
def test_measurements_of_another_store_do_not_follow_those_before(
    database_url: str, tmp_path: Path, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for what came since would miss those with the numbers that it has, of another store."""
    if not held:
        monkeypatch.setattr(measurements, "MOST_HELD", 0)
    with Store.open(f"sqlite:///{tmp_path}/theirs.db") as theirs:
        screened(theirs, 50.0)
        theirs.backup(tmp_path / "b.gz")
    with Store.open(database_url) as store, TestClient(create_app(store)) as http:

        def asked(after: int) -> tuple[int, bool, list[float]]:
            told = http.get("/v1/measurements:columns", params={"after": after}).json()
            return told["version"], told["whole"], told["columns"]["median_us"]

        screened(store, 20.0)
        ours = asked(0)
        assert ours[1:] == (True, [20.0 + place for place in range(len(CONFIGS))])
        assert asked(ours[0]) == (ours[0], False, [])
        put_in_place(tmp_path / "b.gz", database_url)
        theirs_now = asked(ours[0])
        assert theirs_now[1:] == (True, [50.0 + place for place in range(len(CONFIGS))])
        assert asked(theirs_now[0])[1:] == (False, [])


def test_measurements_that_a_copied_file_lacks_are_not_waited_for(tmp_path: Path) -> None:
    """An earlier copy of the same store gives their numbers to others."""
    file = tmp_path / "store.db"
    with Store.open(f"sqlite:///{file}") as store, TestClient(create_app(store)) as http:
        screened(store, 20.0)
        copy_over(file, tmp_path / "earlier.db")
        keep_best(store)
        known = http.get("/v1/measurements:columns").json()
        copy_over(tmp_path / "earlier.db", file)
        told = http.get("/v1/measurements:columns", params={"after": known["version"]}).json()
        assert (told["whole"], told["rows"], known["rows"]) == (True, len(CONFIGS), len(CONFIGS) + 1)
