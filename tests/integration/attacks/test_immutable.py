"""Raw SQL against what must not change, on both databases: each statement is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer
from typer.testing import CliRunner

from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, Fleet
from tests.support import FAMILY, PROVENANCE, keep_best, measured, study_key
from tuner.cli.migrate import migrate
from tuner.errors import AlreadyMeasured
from tuner.evidence.store import Store

OTHER = Gemm.parse("512x512x512")
#: Tables that are copied into themselves: the same row again, in place of the old one.
REPLACED = ("measurement", "provenance", "config", "problem", "device")
ATTACKS = {
    "config.key": "UPDATE config SET key = 'sm90_wgmma:tile_n=8'",
    "config.knobs": "UPDATE config SET knobs = '{}'",
    "problem.key": "UPDATE problem SET key = key || 'x'",
    "problem.m": "UPDATE problem SET m = 1",
    "device.name": "UPDATE device SET name = 'NVIDIA Other'",
    "device.kind": "UPDATE device SET kind = 'recorded'",
    "a best of another problem": "UPDATE best SET measurement_id = (SELECT max(id) FROM measurement) "
    "WHERE measurement_id = (SELECT min(id) FROM measurement)",
    "a best moved to another policy": "UPDATE best SET policy = 'chain'",
    "a best moved to another device": "UPDATE best SET device_id = (SELECT max(id) FROM device) "
    "WHERE problem_id = (SELECT min(id) FROM problem)",
    "a measurement is deleted": "DELETE FROM measurement",
    "a provenance is deleted": "DELETE FROM provenance",
    "a config is deleted": "DELETE FROM config",
    "a problem is deleted": "DELETE FROM problem",
    "a device is deleted": "DELETE FROM device",
    "a best of a measurement that is not there": "UPDATE best SET measurement_id = 999999",
    "an empty verification": "{copy} '{{}}'",
    "no verification": "{copy} 'null'",
    "a verification with mismatches": """{copy} '{{"elements": 4, "mismatches": 1}}'""",
    "a verification of nothing": """{copy} '{{"elements": 0, "mismatches": 0}}'""",
}


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        keep_best(opened)
        keep_best(opened, OTHER, device="NVIDIA B200")
        yield opened


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


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_the_statement(store: Store, name: str) -> None:
    statement, before = ATTACKS[name], everything(store)
    if statement.startswith("{copy}"):
        text = statement.removeprefix("{copy} ").format()
        cast = text if store.embedded else f"CAST({text} AS JSON)"
        statement = copy_of_a_measurement(store).replace("CAST({text} AS JSON)", cast)
    with pytest.raises(sa.exc.IntegrityError), store._engine.begin() as connection:
        connection.exec_driver_sql(statement)
    assert everything(store) == before


@pytest.mark.parametrize("table", REPLACED)
@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE"])
def test_sqlite_replaces_no_row(tmp_path: Path, table: str, verb: str) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        before = everything(store)
        without_foreign_keys = store._engine.execution_options(gemmtune_migrates=True).connect()
        with without_foreign_keys as connection, pytest.raises(sa.exc.IntegrityError, match="never replaced"):
            connection.exec_driver_sql(f"{verb} INTO {table} SELECT * FROM {table}")
        assert everything(store) == before


def test_what_is_allowed_still_works(store: Store) -> None:
    study = store.begin_study(study_key())
    store.record(study.id, measured(FAMILY.config({"tile_n": 64})), PROVENANCE)
    with pytest.raises(AlreadyMeasured):
        store.record(study.id, measured(FAMILY.config({"tile_n": 64})), PROVENANCE)
    keep_best(store, us=5.0)


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
