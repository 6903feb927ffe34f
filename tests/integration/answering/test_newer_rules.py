"""A best whose config a newer rule forbids is answered nowhere, and a retune replaces it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.config import Config
from space.explain import is_legal
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.fleet import FakeDevice
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.answering.answers import answer
from tuner.answering.importance import why
from tuner.errors import NothingCorrect
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, StoredMeasurement
from tuner.evidence.store import Store
from tuner.studying.guidance import Guidance
from tuner.studying.retune import compare, retune
from tuner.studying.study import Budget, tune
from tuner.tables.tables import chosen_bests
from tuner.views.bests import BestColumns
from tuner.views.outlook import outlook
from workers.measurement import Measurement, Policy

LEGAL, ILLEGAL = FAMILY.config({}), FAMILY.config({"tile_n": 256, "stages": 12})
SHAPE = dict(zip("mnk", PROBLEM.extents, strict=True))
BUDGET = Budget(candidates=8, turns=5)


def finals(store: Store, **times: float) -> list[StoredMeasurement]:
    """Finals of both configs, by the program of `FakeDevice`."""
    configs = {"legal": LEGAL, "illegal": ILLEGAL}
    study = store.begin_study(study_key(), fresh=True)
    by = FakeDevice().begin(PROBLEM).provenance
    taken = [measured(configs[name], us, stage="final") for name, us in times.items()]
    return store.record_many(study.id, taken, by)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose best is as fast as no other, and illegal."""
    assert not is_legal(FAMILY, PROBLEM, ILLEGAL)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as opened:
        (won,) = finals(opened, illegal=1.0)
        opened.set_bests([Best(PROBLEM, DEVICE, "cuda", won, None, None, None, 1, {})])
        yield opened


def test_it_is_not_the_answer_and_the_answer_says_why(store: Store) -> None:
    found = answer(store, PROBLEM, DEVICE)
    assert found.source == "predicted"
    assert found.config is not None
    assert is_legal(FAMILY, PROBLEM, found.config)
    assert found.why.startswith("the measured winner breaks smem.capacity (")


def test_what_answers_in_its_place_says_why(store: Store, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/recorded.db") as recordings:
        keep_best(recordings)
        for policy in (None, Policy.CHAIN):
            found = answer(store, PROBLEM, DEVICE, policy, recordings=recordings)
            assert found.source == "recorded"
            assert found.why.startswith("the measured winner breaks smem.capacity (")
            assert "; from a recording of" in found.why


def test_the_best_of_another_policy_does_not_say_that_nothing_was_measured(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/both.db") as store:
        study = store.begin_study(study_key(), fresh=True)
        taken = [measured(ILLEGAL, 1.0, stage="final", policy=Policy.BURST),
                 measured(LEGAL, 2.0, stage="final", policy=Policy.CHAIN)]  # fmt: skip
        for one in store.record_many(study.id, taken, FakeDevice().begin(PROBLEM).provenance):
            store.set_bests([Best(PROBLEM, DEVICE, "cuda", one, None, None, None, 1, {})])
        found = answer(store, PROBLEM, DEVICE, Policy.BURST)
    assert (found.config, found.policy) == (LEGAL, Policy.CHAIN)
    assert found.why.startswith("the measured winner breaks smem.capacity (")
    assert "nothing was measured" not in found.why


def test_a_service_neither_answers_nor_lists_it(store: Store) -> None:
    with TestClient(create_app(store)) as http:
        for _ in range(2):
            said = http.get("/v1/best", params=SHAPE).json()
            assert (said["source"], said["why"][:36]) == ("predicted", "the measured winner breaks smem.capa")
        (one,) = http.post("/v1/best:batch", json={"problems": [SHAPE]}).json()["items"]
        assert one == said
        assert http.get("/v1/best", params=SHAPE | {"require": "measured"}).status_code == 404
        assert http.get(f"/v1/tables/{DEVICE}").json()["entries"] == []
    assert chosen_bests(store, DEVICE) == []


def test_a_legal_one_replaces_it_even_if_it_is_slower(store: Store) -> None:
    assert tune(store, FakeDevice(), PROBLEM, BUDGET).remarks == ()
    assert answer(store, PROBLEM, DEVICE).source == "measured"
    assert store.best_changes(PROBLEM, DEVICE)[-1].reason.startswith("the old one breaks smem.capacity (")


def test_an_earlier_versions_rules_take_no_best_from_the_version_that_replaced_its_kernels(tmp_path: Path) -> None:
    def tell(config: Config, us: float, kernels: str, driver: str = "580.1") -> list[str]:
        by = replace(PROVENANCE, kernel_source_digest=kernels * 64, driver=driver)
        (kept,) = store.record_many(store.begin_study(study_key(), fresh=True).id, [final(config, us)], by)
        return store.set_bests([Best(PROBLEM, DEVICE, "cuda", kept, None, None, None, 1, {})])

    def final(config: Config, us: float) -> Measurement:
        return measured(config, us, stage="final")

    with Store.open(f"sqlite:///{tmp_path}/mixed.db") as store:
        assert tell(LEGAL, 12.0, "a") == tell(ILLEGAL, 9.0, "b") == []
        (remark,) = tell(LEGAL, 11.0, "a")
        assert "the old one breaks smem.capacity (" in remark
        assert remark.endswith("but not by the rules of a newer version, which measured it")
        assert [best.config for best in store.bests()] == [ILLEGAL]
        # The same version on another node, and a later one, forbid it by newer rules.
        assert tell(LEGAL, 11.0, "b", driver="570.2") == []
        assert tell(ILLEGAL, 9.0, "b") == tell(LEGAL, 13.0, "c") == []


@pytest.mark.parametrize("beside", [(), (measured(family_named("cublaslt").config({"rank": 0}), 9.0, stage="final"),)])
def test_finals_in_which_all_of_ours_are_forbidden_by_now_are_run_again(
    tmp_path: Path, beside: tuple[Measurement, ...]
) -> None:
    with Store.open(f"sqlite:///{tmp_path}/resumed.db") as store:
        first = tune(store, FakeDevice(), PROBLEM, BUDGET)
        of_rules = [measured(ILLEGAL, 1.0, stage="final"), *beside]
        store.record_many(first.best.winner.study_id, of_rules, first.best.winner.provenance)
        again = tune(store, FakeDevice(), PROBLEM, BUDGET)
        assert (again.new, again.best.config) == (0, first.best.config)
        assert again.best.winner.id > first.best.winner.id + len(of_rules)
        # Once: what they found is the study's by now.
        assert tune(store, FakeDevice(), PROBLEM, BUDGET).best.winner.id == again.best.winner.id


def test_it_wins_no_finals(store: Store) -> None:
    taken = finals(store, illegal=1.0, legal=2.0)
    assert [best.config for best in bests_of(PROBLEM, taken, 2, {})] == [LEGAL]
    with pytest.raises(NothingCorrect, match=r"rules forbid every finalist by now: smem\.capacity"):
        bests_of(PROBLEM, taken[:1], 2, {})


def test_a_retune_finds_and_replaces_it(store: Store) -> None:
    stale = list(compare(store, FakeDevice(), store.bests(DEVICE), None))
    assert "breaks smem.capacity" in stale[0].changes[0]
    (done,) = retune(store, FakeDevice(), stale, BUDGET, Guidance())
    assert (done.moved, done.stands) == (True, True)


def test_the_outlook_takes_it_for_no_best(store: Store) -> None:
    study = store.begin_study(study_key(), fresh=True)
    by = FakeDevice().begin(PROBLEM).provenance
    store.record_many(study.id, [measured(ILLEGAL, 1.0)], by)
    found = outlook(store, study.id, None)
    assert (found.tried, found.chance) == (1, None)
    store.record_many(study.id, [measured(LEGAL, 1000.0)], by)
    found = outlook(store, study.id, None)
    assert (found.tried, found.chance) == (2, 1.0)


def test_why_speaks_of_the_fastest_that_is_allowed(store: Store) -> None:
    allowed = [config for config in (FAMILY.config({"raster_group": group, "raster": raster, "tile_n": tile_n})
               for group in (1, 2, 4, 8) for raster in ("along_m", "along_n") for tile_n in (64, 96, 128, 256))
               if is_legal(FAMILY, PROBLEM, config)]  # fmt: skip
    study = store.begin_study(study_key(), fresh=True)
    taken = [measured(ILLEGAL, 1.0), *(measured(config, 20.0 + place) for place, config in enumerate(allowed))]
    store.record_many(study.id, taken, FakeDevice().begin(PROBLEM).provenance)
    found = why(store, PROBLEM, DEVICE)
    assert (found.served, found.served_us, found.winner, found.time_us) == (False, None, allowed[0], 20.0)
    assert found.measured == len(allowed)
    assert ILLEGAL not in {each.config for each in found.runners_up}


def test_lists_of_bests_mark_it(store: Store) -> None:
    columns = BestColumns(store)
    assert columns.of(DEVICE).document()["columns"]["forbidden"].tolist() == [True]
    keep_best(store, Gemm(512, 256, 256))
    (known, new) = columns.of(DEVICE).document()["columns"]["forbidden"].tolist()
    assert (known, new) == (True, False)
