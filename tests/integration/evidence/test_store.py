"""The store on a real database: nothing lost, nothing twice, nothing unverified."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.errors import AlreadyMeasured, StoreError
from tuner.evidence import database, postgresql
from tuner.evidence.models import BestRow
from tuner.evidence.records import Best, Removed, StudyStatus, Unreadable
from tuner.evidence.revisions import newest_revision
from tuner.evidence.similarity import reaches
from tuner.evidence.store import Store
from workers.measurement import Outcome, Verification

CONFIGS = [
    FAMILY.config({"tile_n": n, "raster": raster}) for n in range(8, 257, 8) for raster in ("along_m", "along_n")
]


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/deep/store.db"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_a_measurement_comes_back_as_it_was(store: Store) -> None:
    study = store.begin_study(study_key())
    kept = [store.record(study.id, m, PROVENANCE) for m in
            (measured(CONFIGS[0]), measured(CONFIGS[1], outcome=Outcome.TIMEOUT))]  # fmt: skip
    assert store.measurements_of(study.id) == kept
    assert store.page() == kept


def test_an_infinite_error_is_kept(store: Store) -> None:
    study = store.begin_study(study_key())
    wrong = measured(CONFIGS[0], outcome=Outcome.WRONG_RESULT)
    wrong = replace(wrong, verification=Verification(65_536, 65_536, float("inf"), "planted"))
    kept = store.record(study.id, wrong, PROVENANCE)
    assert store.measurements_of(study.id) == [kept]


def test_a_study_measures_a_config_once(store: Store) -> None:
    study = store.begin_study(study_key())
    store.record(study.id, measured(CONFIGS[0]), PROVENANCE)
    before = store.counts()
    with pytest.raises(AlreadyMeasured, match="measured in study"):
        store.record_many(study.id, [measured(CONFIGS[1]), measured(CONFIGS[0])], PROVENANCE)
    assert store.counts() == before


def test_the_same_key_is_the_same_study_until_a_fresh_one_is_wanted(store: Store) -> None:
    first = store.begin_study(study_key())
    store.finish_study(first.id, "enough")
    again = store.begin_study(study_key())
    assert (again.id, again.status, again.stopped_because) == (first.id, StudyStatus.FINISHED, "enough")
    fresh = store.begin_study(study_key(), fresh=True)
    assert fresh.id != first.id
    assert store.begin_study(study_key()).id == fresh.id
    assert store.begin_study(replace(study_key(), device_kind="recorded")).id not in (first.id, fresh.id)


def test_finals_may_be_taken_again_after_more_screening(store: Store) -> None:
    study = store.begin_study(study_key())
    store.record(study.id, measured(CONFIGS[0]), PROVENANCE)
    assert store.final_series(study.id) == []
    finals = store.record_many(study.id, [measured(CONFIGS[0], stage="final")], PROVENANCE)
    assert store.final_series(study.id) == finals
    store.record(study.id, measured(CONFIGS[1]), PROVENANCE)
    assert store.final_series(study.id) == []
    again = store.record_many(study.id, [measured(CONFIGS[0], stage="final")], PROVENANCE)
    assert store.final_series(study.id) == again


def test_a_best_comes_back_and_is_replaced(store: Store) -> None:
    keep_best(store, us=10.0)
    best = keep_best(store, us=8.0)
    assert store.best(PROBLEM, DEVICE) == best
    assert store.bests(DEVICE) == [best]
    assert store.devices() == [(DEVICE, "cuda")]


def test_neighbours_differ_in_extents_alone(store: Store) -> None:
    near = keep_best(store, Gemm.parse("256x256x512"))
    keep_best(store, Gemm.parse("256x256x256", "fp16"))
    assert store.neighbours(PROBLEM, DEVICE) == [near]


def test_the_database_itself_refuses_an_unverified_best(store: Store) -> None:
    best = keep_best(store)
    wrong = store.record(best.winner.study_id, measured(CONFIGS[9], outcome=Outcome.WRONG_RESULT), PROVENANCE)
    with pytest.raises(StoreError, match="refused"):
        store.set_bests([replace(best, winner=wrong)])
    with pytest.raises(sa.exc.IntegrityError), store._engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE best SET measurement_id = {wrong.id}"))
    assert store.best(PROBLEM, DEVICE) == best


@pytest.mark.parametrize("statement", ["UPDATE measurement SET median_us = 1", "DELETE FROM measurement",
                                       "UPDATE provenance SET digest = 'x'", "DELETE FROM provenance"])  # fmt: skip
def test_measurements_are_append_only(store: Store, statement: str) -> None:
    keep_best(store)
    with pytest.raises(sa.exc.IntegrityError, match="append-only"), store._engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_postgresql_refuses_to_truncate_measurements(postgres: Postgres) -> None:
    with Store.open(postgres.database()) as store:
        keep_best(store)
        with pytest.raises(sa.exc.IntegrityError, match="append-only"), store._engine.begin() as connection:
            connection.execute(sa.text("TRUNCATE measurement CASCADE"))


def test_winners_of_similar_problems_come_nearest_first_without_those_of_another_version(store: Store) -> None:
    near, far, beyond = (replace(PROBLEM, m=PROBLEM.m * factor) for factor in (2, 8, 16))
    for problem in (far, near, beyond):
        keep_best(store, problem)
    assert [reaches(PROBLEM, problem) for problem in (near, far, beyond)] == [True, True, False]
    won = keep_best(store, replace(PROBLEM, n=PROBLEM.n * 2)).config
    assert store.winners_near(PROBLEM, DEVICE) == (won,)
    second = FAMILY.config({"tile_n": 64})
    with store.transaction(writes=True) as session:
        row = sa.update(BestRow).where(BestRow.problem.has(key=near.key))
        session.execute(row.values(runner_up="sm90_wgmma:tile_n=7"))
        session.execute(sa.update(BestRow).where(BestRow.problem.has(key=far.key)).values(runner_up=second.key))
        session.execute(sa.update(BestRow).where(BestRow.problem.has(key=beyond.key)).values(runner_up=CONFIGS[0].key))
    assert store.winners_near(PROBLEM, DEVICE) == (won, second)
    assert store.winners_near(PROBLEM, "NVIDIA Imaginary") == ()


def test_a_corrupt_file_is_one_sentence_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match=r"bad\.db.*not a database.*--db"):
        Store.open(f"sqlite:///{tmp_path}/bad.db")


def test_a_truncated_file_is_refused(file_url: str) -> None:
    with Store.open(file_url) as store:
        keep_best(store)
    path = Path(file_url.removeprefix("sqlite:///"))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match="can't be used"), Store.open(file_url) as store:
        store.bests()


def test_a_folder_a_missing_file_and_an_unknown_kind_are_refused(tmp_path: Path, file_url: str) -> None:
    with pytest.raises(StoreError, match="folder"):
        Store.open(f"sqlite:///{tmp_path}")
    with pytest.raises(StoreError, match="is not there"):
        Store.open(file_url, create=False)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(StoreError, match="is empty, not a store"):
        Store.open(f"sqlite:///{empty}", create=False)
    assert empty.stat().st_size == 0
    Store.open(f"sqlite:///{empty}").close()
    for url in ("nonsense://x", "mysql://user@host/name"):
        with pytest.raises(StoreError, match="not a database that we support"):
            Store.open(url)
    with pytest.raises(StoreError, match="is not a database URL"):
        Store.open("://")


@pytest.mark.parametrize("url", ["postgresql://u:secret@h:54x/db", "a b://u:secret@h/d"])
def test_what_is_no_url_is_named_without_its_password(url: str) -> None:
    with pytest.raises(StoreError, match=r"//u:\*\*\*@h.* is not a database URL"):
        database.connect(url)


def test_a_newer_schema_is_refused_and_left_as_it_is(database_url: str) -> None:
    with Store.open(database_url) as store, store._engine.begin() as connection:
        connection.execute(sa.text("UPDATE gemmtune_alembic_version SET version_num = '9999'"))
    newest = newest_revision()
    with pytest.raises(StoreError, match=f"schema 9999, newer than this gemmtune, which knows {newest}: upgrade"):
        Store.open(database_url)
    assert revision_and_tables(database_url)[0] == "9999"


def test_a_migration_that_fails_leaves_the_store_at_its_old_revision(database_url: str) -> None:
    engine = database.open_engine(database_url, create=True)
    with database.migrating(engine) as connection:
        database.migrate(connection, "base")
        database.migrate(connection, "0003")
        # Three revisions later a table of this name is made.
        connection.execute(sa.text("CREATE TABLE build (id INTEGER)"))
    engine.dispose()
    before = revision_and_tables(database_url)
    assert before[0] == "0003"
    with pytest.raises(StoreError, match="build"):
        Store.open(database_url)
    assert revision_and_tables(database_url) == before


def revision_and_tables(url: str) -> tuple[str | None, list[str]]:
    engine = database.connect(url)
    with engine.begin() as connection:
        found = database.current_revision(connection), sorted(sa.inspect(connection).get_table_names())
    engine.dispose()
    return found


def test_a_start_reads_every_row_of_a_file_only_if_something_changed(tmp_path: Path) -> None:
    engine, said = database.connect(f"sqlite:///{tmp_path}/store.db"), list[str]()
    sa.event.listen(engine, "before_cursor_execute", lambda *words: said.append(words[2]))
    for _ in range(2):
        with database.migrating(engine) as connection:
            database.migrate(connection, "head")
        checked, said[:] = [text for text in said if "foreign_key_check" in text], []
    assert checked == []
    study = "INSERT INTO study VALUES (1, 999, 999, 'p', 'f', 's', 1, 'running', '', '2026-01-01')"
    with pytest.raises(StoreError, match="point at rows"), database.migrating(engine) as connection:
        connection.exec_driver_sql(study)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM study").scalar() == 0
    engine.dispose()


def test_a_problem_that_no_kind_reads_is_one_sentence_and_spoils_no_other(store: Store) -> None:
    keep_best(store)
    keep_best(store, Gemm.parse("128x256x256"))
    with store.transaction(writes=True) as session:
        # As a newer version would have written it.
        session.execute(sa.text(f"DROP TRIGGER problem_fixed{'' if store.embedded else ' ON problem'}"))
        session.execute(sa.text("UPDATE problem SET key = 'conv2d/64x64x3x3' WHERE key = :key"), {"key": PROBLEM.key})
    with pytest.raises(StoreError, match=r"a problem that this version cannot read .*conv2d.*: upgrade gemmtune"):
        store.bests()
    unread, read = (best for _, best in store.bests_after(0, 10))
    assert isinstance(unread, Unreadable)
    assert isinstance(read, Best)
    with store.transaction(writes=True) as session:
        session.execute(sa.text(
            "INSERT INTO best_change (problem_id, device_id, policy, reason, at, version) "
            "SELECT problem_id, device_id, policy, 'revoked', CURRENT_TIMESTAMP, 9 FROM best WHERE version = 1"
        ))  # fmt: skip
        session.execute(sa.text("UPDATE counter SET value = 9 WHERE name = 'best'"))
    assert store.bests_after(2, 10) == [(9, Removed("conv2d/64x64x3x3", DEVICE, "cuda"))]


def test_a_server_that_is_not_there_is_one_sentence_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"start PostgreSQL.*--db") as refusal:
        Store.open("postgresql://user:secret@127.0.0.1:9/name")
    assert "secret" not in str(refusal.value)


def test_services_that_start_together_migrate_once(postgres: Postgres) -> None:
    url, failures = postgres.empty_database(), list[Exception]()

    def start() -> None:
        try:
            Store.open(url).close()
        except Exception as error:
            failures.append(error)

    together(start for _ in range(4))
    assert failures == []


def test_a_store_comes_back_after_its_server_restarted(postgres: Postgres) -> None:
    with Store.open(postgres.database()) as store:
        best = keep_best(store)
        postgres.restart()
        assert store.bests() == [best]


def test_a_connection_that_broke_while_it_was_idle_is_noticed(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    ours = f"datname = '{sa.make_url(url).database}'"
    with Store.open(url) as store:
        best = keep_best(store)

        def broken() -> list[Best]:
            postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
            return store.bests()

        monkeypatch.setattr(postgresql, "_TRUSTED_SECONDS", 0.0)
        assert broken() == [best]
        # A recently used connection is not tested: one call fails, and the next one gets a new connection.
        monkeypatch.setattr(postgresql, "_TRUSTED_SECONDS", 3_600.0)
        with pytest.raises(StoreError):
            broken()
        assert store.bests() == [best]


def test_ids_become_visible_in_their_order(postgres: Postgres) -> None:
    seen, done = list[int](), threading.Event()
    url = postgres.database()

    def write(start: int) -> None:
        with Store.open(url) as store:
            study = store.begin_study(study_key(Gemm.parse(f"64x64x{start + 8}")))
            for config in CONFIGS[start : start + 12]:
                store.record(study.id, measured(config), PROVENANCE)

    def follow() -> None:
        with Store.open(url) as store:
            while True:
                last = done.is_set()
                seen.extend(stored.id for stored in store.page(after=seen[-1] if seen else 0))
                if last:
                    return

    follower = threading.Thread(target=follow)
    follower.start()
    together(partial(write, 12 * place) for place in range(4))
    done.set()
    follower.join()
    with Store.open(url) as store:
        assert seen == [stored.id for stored in store.page()]
        assert len(seen) == 48


def together(jobs: Iterable[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_writers_wait_for_each_other(database_url: str) -> None:
    failures: list[Exception] = []

    def write(start: int) -> None:
        try:
            with Store.open(database_url) as store:
                study = store.begin_study(study_key())
                for config in CONFIGS[start : start + 12]:
                    store.record(study.id, measured(config), PROVENANCE)
        except Exception as error:
            failures.append(error)

    together(partial(write, 12 * place) for place in range(4))
    assert failures == []
    with Store.open(database_url) as store:
        assert store.counts()["measurement"] == 48


WRITER = """
import sys
from tests.integration.evidence.test_store import CONFIGS
from tests.support import PROVENANCE, measured, study_key
from tuner.evidence.store import Store
with Store.open(sys.argv[1]) as store:
    study = store.begin_study(study_key())
    for config in CONFIGS:
        store.record(study.id, measured(config), PROVENANCE)
        print("kept", flush=True)
"""


def test_what_was_kept_survives_kill_9(database_url: str) -> None:
    kept = 0
    with subprocess.Popen([sys.executable, "-c", WRITER, database_url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in process.stdout:
            kept += 1
            if kept == 20:
                os.kill(process.pid, signal.SIGKILL)
    assert kept >= 20
    with Store.open(database_url) as store:
        # One more may have been committed between the last reported commit and the kill.
        assert store.counts()["measurement"] - kept in (0, 1)
        study = store.begin_study(study_key())
        assert len(store.measurements_of(study.id)) == store.counts()["measurement"]


@pytest.mark.parametrize(("size", "free", "full"), [(99, 0, True), (99, 15, True), (99, 16, False), (0, 0, False)])
def test_a_file_on_a_full_disk_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, free: int, full: bool
) -> None:
    left = SimpleNamespace(f_frsize=4096, f_blocks=size, f_bavail=free, f_bfree=free)
    monkeypatch.setattr("tuner.evidence.sqlite.os.statvfs", lambda _: left)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        with pytest.raises(StoreError, match=r"disk is full.*: free space") if full else nullcontext():
            store.check_writable()
        assert store.counts()["best"] == 0
