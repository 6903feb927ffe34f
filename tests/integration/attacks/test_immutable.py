"""Raw SQL against what must not change, on both databases: each statement is refused, and changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer
from typer.testing import CliRunner

from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, PROBLEMS, Fleet
from tests.support import FAMILY, PROVENANCE, keep_best, measured, study_key
from tuner.cli.migrate import migrate
from tuner.errors import AlreadyMeasured
from tuner.evidence import tokens
from tuner.evidence.campaign_models import BuildRow
from tuner.evidence.database import open_engine
from tuner.evidence.store import Store

OTHER, THIRD = Gemm.parse("512x512x512"), Gemm.parse("768x768x768")
BUILD = {
    "digest": "a" * 64, "arch": "sm_90a", "nvrtc": "13.0", "problem_key": "p", "config_key": "c", "registers": 1,
    "warnings": [], "seconds": 0.1, "cubin_sha256": "0", "cubin": b"x", "offered_by": "node",
    "offered_at": datetime.now(UTC),
}  # fmt: skip
#: Tables that are copied into themselves: the same row again, in place of the old one.
REPLACED = (
    "measurement", "provenance", "config", "problem", "device", "study", "token", "worker", "campaign_problem", "round",
    "build", "best_change",
)  # fmt: skip
#: A measurement that could be a best: its problem has none.
WITHOUT_BEST = "(SELECT max(id) FROM measurement WHERE problem_id NOT IN (SELECT problem_id FROM best))"
RUNNING, ENDED = "WHERE status = 'running'", "WHERE status = 'done'"
ATTACKS = {
    "config.key": "UPDATE config SET key = 'sm90_wgmma:tile_n=8'",
    "config.knobs": "UPDATE config SET knobs = '{}'",
    "problem.key": "UPDATE problem SET key = key || 'x'",
    "problem.m": "UPDATE problem SET m = 1",
    "problem.n": "UPDATE problem SET n = 1",
    "problem.k": "UPDATE problem SET k = 1",
    "problem.kind": "UPDATE problem SET kind = 'block_scaled_gemm'",
    "problem.fields": "UPDATE problem SET fields = '{}'",
    "device.name": "UPDATE device SET name = 'NVIDIA Other'",
    "device.kind": "UPDATE device SET kind = 'recorded'",
    "a best of another problem": "UPDATE best SET measurement_id = (SELECT max(id) FROM measurement) "
    "WHERE measurement_id = (SELECT min(id) FROM measurement)",
    "a best moved to another policy": "UPDATE best SET policy = 'chain'",
    "a best moved to another device": "UPDATE best SET device_id = (SELECT max(id) FROM device) "
    "WHERE problem_id = (SELECT min(id) FROM problem)",
    "study.problem_id": "UPDATE study SET problem_id = (SELECT max(id) FROM problem)",
    "study.device_id": "UPDATE study SET device_id = (SELECT max(id) FROM device)",
    "study.policy": "UPDATE study SET policy = 'chain'",
    "study.source": "UPDATE study SET source = 'another program'",
    "study.generation": "UPDATE study SET generation = generation + 1",
    "a study is deleted": "DELETE FROM study",
    "token.digest": "UPDATE token SET digest = 'mine'",
    "token.name": "UPDATE token SET name = name || 'x'",
    "token.scopes": """UPDATE token SET scopes = '["admin"]'""",
    "token.expires_at": "UPDATE token SET expires_at = NULL",
    "a revoked token is valid again": "UPDATE token SET revoked_at = NULL",
    "a token is deleted": "DELETE FROM token",
    "worker.token_id": "UPDATE worker SET token_id = 1",
    "worker.slot": "UPDATE worker SET slot = 'mine'",
    "worker.device_id": "UPDATE worker SET device_id = (SELECT max(id) FROM device)",
    "a worker that is gone is live again": "UPDATE worker SET status = 'live' WHERE status = 'gone'",
    "campaign_problem.problem_id": "UPDATE campaign_problem SET problem_id = (SELECT min(id) FROM problem)",
    "round.problem_id": "UPDATE round SET problem_id = (SELECT min(id) FROM problem)",
    "round.lease": f"UPDATE round SET lease = 'mine' {RUNNING}",
    "round.worker_id": f"UPDATE round SET worker_id = (SELECT max(id) FROM worker) {RUNNING}",
    "a round that has ended runs again": f"UPDATE round SET status = 'running', worker_id = 1 {ENDED}",
    "round.report_digest": f"UPDATE round SET report_digest = 'mine' {ENDED}",
    "round.study_id": f"UPDATE round SET study_id = (SELECT min(id) FROM study) {ENDED}",
    "round.reason": f"UPDATE round SET reason = 'another' {ENDED}",
    "a best moved with its measurement": f"UPDATE best SET measurement_id = {WITHOUT_BEST}, problem_id = "
    f"(SELECT problem_id FROM measurement WHERE id = {WITHOUT_BEST}) WHERE id = (SELECT min(id) FROM best)",
    "best_change.reason": "UPDATE best_change SET reason = 'another'",
    "best_change.measurement_id": "UPDATE best_change SET measurement_id = NULL",
    "a change of a best is deleted": "DELETE FROM best_change",
    "build.digest": "UPDATE build SET digest = 'another'",
    "build.cubin": "UPDATE build SET cubin = cubin || cubin",
    "build.offered_by": "UPDATE build SET offered_by = 'another'",
    "measurement.token_id": "UPDATE measurement SET token_id = 7",
    "measurement.verification": "UPDATE measurement SET verification = NULL",
    "a measurement is deleted": "DELETE FROM measurement",
    "a provenance is deleted": "DELETE FROM provenance",
    "a config is deleted": "DELETE FROM config",
    "a problem is deleted": "DELETE FROM problem",
    "a device is deleted": "DELETE FROM device",
    "a best of a measurement that is not there": "UPDATE best SET measurement_id = 999999",
    "an empty verification": "{copy} '{}'",
    "no verification": "{copy} 'null'",
    "a verification with mismatches": """{copy} '{"elements": 4, "mismatches": 1}'""",
    "a verification of nothing": """{copy} '{"elements": 0, "mismatches": 0}'""",
}


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


def fill(store: Store) -> None:
    """Rows in every table: rounds that run and that ended, a worker that left, a revoked token, a build."""
    keep_best(store)
    keep_best(store, OTHER, device="NVIDIA B200")
    fleet = Fleet(store, BY_HAND)
    fleet.campaign(PROBLEMS[:2])
    first, second = fleet.hand(0), fleet.hand(1)
    first.work(first.claimed())
    fleet.workers.leave(first.id)
    second.claimed()
    fleet.hand(2)
    for name in ("one", "two"):
        tokens.make(store, name, ["work"], timedelta(days=1))
    tokens.revoke(store, "two")
    with store.transaction(writes=True) as session:
        session.execute(sa.insert(BuildRow), BUILD)
    unserved = store.begin_study(study_key(THIRD))
    store.record(unserved.id, measured(FAMILY.config({}), 10.0, THIRD), PROVENANCE)


def typer_app() -> typer.Typer:
    app = typer.Typer()
    app.command()(migrate)
    return app


def copy_of_a_measurement(store: Store) -> str:
    """SQL that inserts a copy of a measurement in a series of its own, up to its verification."""
    columns = [c["name"] for c in sa.inspect(store._engine).get_columns("measurement")]
    kept = [name for name in columns if name not in ("id", "series", "verification")]
    listed = ", ".join(kept)
    return f"INSERT INTO measurement ({listed}, series, verification) SELECT {listed}, 77, verification_ FROM " + (
        "(SELECT * FROM measurement LIMIT 1) AS one, (SELECT CAST({text} AS JSON) AS verification_) AS two"
    )


def everything(store: Store) -> list[list[tuple[object, ...]]]:
    with store._engine.begin() as connection:
        rows = [connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY id").fetchall()
                for table in (*REPLACED, "best")]  # fmt: skip
        return [[tuple(row) for row in table] for table in rows]


def test_the_database_refuses_the_statement(store: Store) -> None:
    before, accepted = everything(store), []
    for name, statement in ATTACKS.items():
        if statement.startswith("{copy}"):
            text = statement.removeprefix("{copy} ")
            cast = text if store.embedded else f"CAST({text} AS JSON)"
            statement = copy_of_a_measurement(store).replace("CAST({text} AS JSON)", cast)
        with store._engine.connect() as connection:
            try:
                connection.exec_driver_sql(statement)
                accepted.append(name)
            except sa.exc.IntegrityError:
                pass
    assert accepted == []
    assert everything(store) == before


def test_sqlite_replaces_no_row(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        fill(store)
        before = everything(store)
        with store._engine.execution_options(gemmtune_migrates=True).connect() as without_foreign_keys:
            for table in REPLACED:
                for verb in ("INSERT OR REPLACE", "REPLACE"):
                    with pytest.raises(sa.exc.IntegrityError, match="never replaced"):
                        without_foreign_keys.exec_driver_sql(f"{verb} INTO {table} SELECT * FROM {table}")
                    without_foreign_keys.rollback()
        assert everything(store) == before


def test_sqlite_keeps_tokens_and_correct_bests_where_foreign_keys_are_not_checked(tmp_path: Path) -> None:
    """As in the `sqlite3` shell, which does not check them."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        fill(store)
        copy = copy_of_a_measurement(store).replace("CAST({text} AS JSON)", "NULL")
        columns, rows = copy.split(" SELECT ", 1)
        wrong = " SELECT ".join((columns, rows.replace("outcome", "'wrong_result'", 1)))
        with store._engine.begin() as connection:
            connection.exec_driver_sql(wrong)
        before = everything(store)
        attacks = {
            "never replaced": "INSERT OR REPLACE INTO token (name, digest, scopes, created_at) "
            "SELECT 'mine', digest, '[\"admin\"]', created_at FROM token WHERE revoked_at IS NOT NULL",
            "not correct": "UPDATE best SET measurement_id = (SELECT max(id) FROM measurement) "
            "WHERE measurement_id = (SELECT min(id) FROM measurement)",
        }
        with store._engine.execution_options(gemmtune_migrates=True).connect() as without_foreign_keys:
            for said, statement in attacks.items():
                with pytest.raises(sa.exc.IntegrityError, match=said):
                    without_foreign_keys.exec_driver_sql(statement)
                without_foreign_keys.rollback()
        assert everything(store) == before


def test_what_is_allowed_still_works(store: Store) -> None:
    study = store.begin_study(study_key())
    store.record(study.id, measured(FAMILY.config({"tile_n": 64})), PROVENANCE)
    with pytest.raises(AlreadyMeasured):
        store.record(study.id, measured(FAMILY.config({"tile_n": 64})), PROVENANCE)
    keep_best(store, us=5.0)


def test_several_may_migrate_for_one_role_at_once(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url, at_once = postgres.empty_database(), threading.Barrier(4)

    def opened(url: str, create: bool) -> sa.Engine:
        engine = open_engine(url, create)
        at_once.wait()
        return engine

    monkeypatch.setattr("tuner.cli.migrate.open_engine", opened)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: migrate("gemmtune_shared_role", url), range(4)))
    with Store.open(sa.make_url(url).set(username="gemmtune_shared_role").render_as_string(False)) as store:
        keep_best(store)


def test_a_service_works_with_a_role_that_cannot_touch_the_triggers(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = postgres.empty_database()
    monkeypatch.setenv("GEMMTUNE_MIGRATION_DB", owner)
    done = CliRunner().invoke(typer_app(), ["--for", "gemmtune_service_role"])
    assert done.exit_code == 0, done.output
    url = sa.make_url(owner).set(username="gemmtune_service_role").render_as_string(hide_password=False)
    with Store.open(url) as store:
        keep_best(store)
        fleet = Fleet(store, BY_HAND)
        fleet.campaign([OTHER])
        hand = fleet.hand()
        hand.work(hand.claimed())
        fleet.sweeper.sweep()
        store.check_writable()
        for statement in (
            "DROP TRIGGER measurement_append_only ON measurement",
            "ALTER TABLE measurement DISABLE TRIGGER ALL",
            "UPDATE measurement SET median_us = 1",
            "DELETE FROM provenance",
            "TRUNCATE measurement CASCADE",
            "CREATE OR REPLACE FUNCTION gemmtune_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RETURN NEW; END $$",
            "SET session_replication_role = replica",
            "UPDATE gemmtune_alembic_version SET version_num = '0001'",
        ):
            with pytest.raises(sa.exc.ProgrammingError, match=r"permission|owner"), store._engine.begin() as service:
                service.exec_driver_sql(statement)
