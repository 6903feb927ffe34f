"""Bests read without SQLAlchemy are those of the store, and whatever is unusual is left to the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from api.snapshot import Snapshot
from space.kinds.gemm import Gemm
from tests.recorded_store import fill
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.errors import StoreError
from tuner.evidence.quick_bests import QuickBests
from tuner.evidence.revisions import newest_revision
from tuner.evidence.store import Store
from workers.measurement import Policy


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('quick')}/store.db"
    with Store.open(url) as store:
        fill(store, two_devices=False)
        keep_best(store)
    return url


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A store with one best, to be damaged."""
    path = tmp_path / "store.db"
    with Store.open(f"sqlite:///{path}") as store:
        keep_best(store)
    return path


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def test_they_are_the_stores(url: str) -> None:
    with Store.open(url) as store, QuickBests.open(url) or pytest.fail("not opened") as quick:
        served = store.bests(DEVICE)
        assert len(served) > 5
        for problem in (best.problem for best in served):
            for policy in (None, *Policy):
                assert quick.best(problem, DEVICE, policy) == store.best(problem, DEVICE, policy)
                near = store.neighbours(problem, DEVICE, policy)
                assert quick.neighbours(problem, DEVICE, policy) == near
                assert len(near) == len(store.neighbours(problem, DEVICE))
        assert quick.best(PROBLEM, "NVIDIA L40S") is None


def test_a_problem_nearby_that_a_gpu_measured_is_one_neighbour_however_fast_its_replay(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Store.open(url) as store:
        own = keep_best(store)
        replay = store.begin_study(replace(study_key(), device_kind="recorded"))
        for under in (own.policy, Policy.CHAIN):
            taken = store.record(replay.id, measured(FAMILY.config({}), 5.0, stage="final", policy=under), PROVENANCE)
            store.set_bests([replace(own, device_kind="recorded", winner=taken)])
        snapshot = Snapshot(store.served_of)
        snapshot.apply(store.bests_after(0, 100))
        with QuickBests.open(url) or pytest.fail("not opened") as quick:
            asked = Gemm(256, 256, 512)
            for bests in (store, quick, snapshot):
                for policy in (None, Policy.CHAIN):
                    assert [near.winner.id for near in bests.neighbours(asked, DEVICE, policy)] == [own.winner.id]


def test_a_problem_nearby_that_only_a_newer_version_reads_is_left_out(own: Path) -> None:
    url, asked = f"sqlite:///{own}", Gemm(256, 256, 512)
    changed(own, "DROP TRIGGER config_fixed")
    changed(own, "UPDATE config SET key = 'sm70_wmma:tile_m=1'")
    with Store.open(url) as store, QuickBests.open(url) or pytest.fail("not opened") as quick:
        assert [bests.neighbours(asked, DEVICE) for bests in (store, quick)] == [[], []]
        farther = keep_best(store, Gemm(256, 256, 128))
        with QuickBests.open(url) or pytest.fail("not opened") as quick:
            assert store.neighbours(asked, DEVICE) == quick.neighbours(asked, DEVICE) == [farther]


def test_another_schema_and_what_is_no_file_of_sqlite_are_left_to_the_store(own: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    for place in (tmp_path, tmp_path / "none.db", tmp_path / "text"):
        assert QuickBests.open(f"sqlite:///{place}") is None
    assert QuickBests.open("sqlite:///:memory:") is None
    assert QuickBests.open("postgresql://nobody@127.0.0.1:9/none") is None
    changed(own, "UPDATE gemmtune_alembic_version SET version_num = '0012'")
    assert QuickBests.open(f"sqlite:///{own}") is None
    changed(own, f"UPDATE gemmtune_alembic_version SET version_num = '{newest_revision()}'")
    with QuickBests.open(f"sqlite:///{own}") or pytest.fail("not opened") as quick:
        assert quick.best(PROBLEM, DEVICE) is not None


@pytest.mark.parametrize("column", ["samples_us", "clocks", "verification"])
@pytest.mark.parametrize("text", ["'x'", "'{'", "x'ff'"])
def test_what_is_no_json_is_what_the_store_makes_of_it(own: Path, column: str, text: str) -> None:
    changed(own, "DROP TRIGGER measurement_no_update")
    changed(own, f"UPDATE measurement SET {column} = {text}")
    url = f"sqlite:///{own}"
    with Store.open(url) as store, QuickBests.open(url) or pytest.fail("not opened") as quick:
        assert quick.best(PROBLEM, DEVICE) == store.best(PROBLEM, DEVICE)


def test_where_what_a_gpu_measured_cant_be_true_its_replay_answers(own: Path) -> None:
    url = f"sqlite:///{own}"
    with Store.open(url) as store:
        best = store.best(PROBLEM, DEVICE) or pytest.fail("no best")
        study = store.begin_study(replace(study_key(), device_kind="recorded"))
        replay = store.record(study.id, best.winner.measurement, PROVENANCE)
        store.set_bests([replace(best, device_kind="recorded", winner=replay)])
    changed(own, "DROP TRIGGER measurement_no_update")
    changed(own, f"UPDATE measurement SET samples_us = 'x' WHERE id = {best.winner.id}")
    with Store.open(url) as store, QuickBests.open(url) or pytest.fail("not opened") as quick:
        snapshot = Snapshot(store.served_of)
        snapshot.apply(store.bests_after(0, 100))
        for bests in (snapshot, quick, store):
            assert (found := bests.best(PROBLEM, DEVICE))
            assert found.winner.id == replay.id


def test_a_damaged_store_is_one_sentence(own: Path) -> None:
    changed(own, "DROP TABLE provenance")
    with (
        QuickBests.open(f"sqlite:///{own}") or pytest.fail("not opened") as quick,
        pytest.raises(StoreError, match=r"can't be used \(no such table: provenance\)"),
    ):
        quick.best(PROBLEM, DEVICE)


def test_a_part_of_an_algorithm_is_one_sentence(own: Path) -> None:
    changed(own, "DROP TRIGGER config_fixed")
    changed(own, "UPDATE config SET key = 'cublaslt:rank=0,algorithm=66,tile=24'")
    url, said = f"sqlite:///{own}", r"this one lacks stages, .*\): upgrade gemmtune, or restore a backup"
    with Store.open(url) as store, QuickBests.open(url) or pytest.fail("not opened") as quick:
        for bests in (store, quick):
            with pytest.raises(StoreError, match=said):
                bests.best(PROBLEM, DEVICE)
