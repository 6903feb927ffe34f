"""Stores and backups of revision 0006, before problems had kinds: migrated, restored, and their answers unchanged.

`tests/data/` has that version's files: a store as a SQLite dump and as a backup, and the answers of `best --json`.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from benchmarks.postgres import Postgres
from gemmtune.command import app
from space.kind import problem_from_key
from tests.shell import Shell
from tuner.errors import StoreError
from tuner.evidence import backup, database
from tuner.evidence.backup import restore_backup
from tuner.evidence.revisions import newest_revision
from tuner.evidence.store import Store

DATA = Path(__file__).parents[2] / "data"
DUMP, BACKUP = DATA / "store_0006.sql", DATA / "backup_0006.jsonl.gz"
ANSWERS = json.loads((DATA / "best_0006.json").read_text())


@pytest.fixture
def old_store(database_url: str) -> str:
    """A store of revision 0006 on each kind of database."""
    parsed = sa.make_url(database_url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database
        Path(parsed.database).parent.mkdir()
        with sqlite3.connect(parsed.database) as file:
            file.executescript(DUMP.read_text())
        file.close()
        return database_url
    engine = database.connect(database_url)
    with database.migrating(engine) as connection:
        database.migrate(connection, "base")
        database.migrate(connection, "0006")
        copy_rows(connection)
    engine.dispose()
    return database_url


def copy_rows(connection: sa.Connection) -> None:
    """Every row of the backup, into tables as they were."""
    tables = sa.MetaData()
    tables.reflect(connection)
    connection.execute(sa.delete(tables.tables["counter"]))
    for line in gzip.decompress(BACKUP.read_bytes()).splitlines()[1:-1]:
        document = json.loads(line)
        table = tables.tables[document["table"]]
        moments = [column.name for column in table.columns if isinstance(column.type, sa.DateTime)]
        row = document["row"] | {name: datetime.fromisoformat(document["row"][name]) for name in moments
                                 if document["row"].get(name)}  # fmt: skip
        connection.execute(sa.insert(table), row)


def check_answers(url: str) -> None:
    """Every answer of `best` equals the old version's, but a problem names its kind and a time its policy."""
    for before in ANSWERS:
        asked = before["problem"]
        words = ["best", f"{asked['m']}x{asked['n']}x{asked['k']}", "--dtype", asked["dtype"], "--db", url, "--json"]
        said = CliRunner().invoke(app, words, catch_exceptions=False)
        now = json.loads(said.stdout)
        for problem in (now["problem"], now["evidence"]["problem"]):
            assert problem.pop("kind") == "gemm"
        said = json.dumps(before).replace("cold_graph", "rounds")
        then = json.loads(said.replace("recording):", "recording; no GPU was used) under rounds:"))
        # Evidence has the fields of the table's entry by now: more of them, and samples instead of their count.
        known = then.pop("evidence")
        found = now.pop("evidence")
        assert known.pop("device") == now["device"]
        assert known.pop("samples") == len(found["samples_us"])
        assert {name: found[name] for name in known} == known
        for name in ("roofline_us", "tune"):
            now.pop(name, None)
        # Replays of kernels that have changed since were `measured` then.
        assert (now.pop("source"), then.pop("source")) == ("stale", "measured")
        assert now.pop("why").startswith(f"{then.pop('why')}; our kernels have changed since they were recorded")
        # How it was timed, which no answer said then: among copies of three times L2, and beside its own copies.
        if now["config"]["knobs"]["cache_hint"].startswith("stream_"):
            assert now["grounds"].pop().startswith("its cache_hint kept a part of the weights in L2")
        if now["config"]["knobs"]["pdl"]:
            assert now["grounds"].pop().startswith("it starts early (pdl=1)")
        assert now == then


def check_problems(url: str) -> None:
    """Every problem has the kind and the fields that its key tells."""
    engine = database.connect(url)
    with engine.begin() as connection:
        assert database.current_revision(connection) == newest_revision()
        rows = connection.execute(sa.text("SELECT key, kind, fields FROM problem ORDER BY id")).all()
    engine.dispose()
    assert len(rows) == 4
    for key, kind, fields in rows:
        read: dict[str, Any] = fields if isinstance(fields, dict) else json.loads(fields)
        assert (kind, read) == ("gemm", problem_from_key(key).fields())
    assert {"m": 24, "n": 2112, "k": 7168, "dtype": "int8", "layout": "nt", "batch": 2, "epilogue": "none"} in [
        fields if isinstance(fields, dict) else json.loads(fields) for _, _, fields in rows
    ]


def test_an_old_store_is_migrated_and_answers_as_before(old_store: str) -> None:
    with Store.open(old_store) as store:
        counts = store.counts()
    assert (counts["measurement"], counts["best"], counts["campaign_problem"]) == (16, 2, 2)
    check_problems(old_store)
    check_answers(old_store)


def test_an_old_backup_is_restored_and_answers_as_before(database_url: str) -> None:
    counts = restore_backup(BACKUP, database_url)
    assert (counts["measurement"], counts["best"], counts["campaign_problem"]) == (16, 2, 2)
    check_problems(database_url)
    check_answers(database_url)


def test_a_service_that_starts_while_an_old_backup_is_restored_waits(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, migrate = postgres.empty_database(), backup.migrate
    service = threading.Thread(target=lambda: Store.open(url).close())
    waits = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    def meanwhile(connection: sa.Connection, revision: str) -> None:
        monkeypatch.setattr(backup, "migrate", migrate)
        service.start()
        while service.is_alive() and not connection.scalar(waits):
            time.sleep(0.01)
        migrate(connection, revision)

    monkeypatch.setattr(backup, "migrate", meanwhile)
    restore_backup(BACKUP, url)
    service.join()
    check_problems(url)
    check_answers(url)


def test_an_old_store_is_backed_up_before_it_is_migrated(old_store: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["backup", str(tmp_path / "b.gz"), "--db", old_store])
    assert told.exit_code == 0, told.output
    engine = database.connect(old_store)
    with engine.begin() as connection:
        assert database.current_revision(connection) == "0006"
    engine.dispose()
    restored = f"sqlite:///{tmp_path}/restored.db"
    counts = restore_backup(tmp_path / "b.gz", restored)
    assert (counts["measurement"], counts["best"], counts["campaign_problem"]) == (16, 2, 2)
    check_problems(restored)
    check_answers(restored)


@pytest.mark.parametrize(("revision", "said"), [("", "no tables"), ("9999", "newer than this gemmtune")])
def test_what_is_no_store_of_a_known_version_is_not_backed_up(tmp_path: Path, revision: str, said: str) -> None:
    with sqlite3.connect(tmp_path / "store.db") as file:
        # Not of length 0, which is told before it is opened.
        file.execute("PRAGMA user_version = 1")
        if revision:
            file.execute(f"CREATE TABLE gemmtune_alembic_version AS SELECT '{revision}' AS version_num")
    file.close()
    told = Shell(tmp_path)("backup", str(tmp_path / "b.gz"), "--db", str(tmp_path / "store.db"))
    assert told.code == 5
    assert said in told.sentence
    assert not (tmp_path / "b.gz").exists()


def test_an_old_key_that_no_kind_reads_stops_the_migration_and_leaves_the_store(old_store: str) -> None:
    engine = database.connect(old_store)
    with engine.execution_options(**{database.WRITES: True}).begin() as connection:
        connection.execute(sa.text("UPDATE problem SET key = 'conv2d/64x64x3x3' WHERE id = 3"))
    with pytest.raises(StoreError, match=r"cannot read \(key 'conv2d/64x64x3x3' is not a problem key.*\): upgrade"):
        Store.open(old_store)
    with engine.begin() as connection:
        assert database.current_revision(connection) == "0006"
        assert "kind" not in {column["name"] for column in sa.inspect(connection).get_columns("problem")}
    engine.dispose()


def test_the_owner_restores_for_a_service_with_a_role_of_its_own(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = postgres.empty_database()
    service = sa.make_url(owner).set(username="gemmtune_restored_role").render_as_string(hide_password=False)
    monkeypatch.setenv("GEMMTUNE_DB", service)
    monkeypatch.setenv("GEMMTUNE_MIGRATION_DB", owner)
    grant = ["migrate", "--for", "gemmtune_restored_role"]
    shell = CliRunner()
    assert shell.invoke(app, grant).exit_code == 0
    restored = shell.invoke(app, ["restore", str(BACKUP)])
    assert restored.exit_code == 0, restored.output
    with Store.open(service) as store, pytest.raises(StoreError, match="`gemmtune migrate --for ROLE` as the tables'"):
        store.page()
    assert shell.invoke(app, grant).exit_code == 0
    with Store.open(service) as store:
        assert len(store.page()) == 16


def test_the_owner_is_no_role_for_services_and_still_migrates(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No superuser, who may do what was revoked.
    postgres.execute("CREATE ROLE gemmtune_owner LOGIN")
    url = sa.make_url(postgres.empty_database())
    postgres.execute(f"ALTER DATABASE {url.database} OWNER TO gemmtune_owner")
    monkeypatch.setenv("GEMMTUNE_MIGRATION_DB", url.set(username="gemmtune_owner").render_as_string(False))
    shell = CliRunner()
    refused = shell.invoke(app, ["migrate", "--for", "gemmtune_owner"])
    assert isinstance(refused.exception, StoreError)
    said = "gemmtune_owner is the tables' owner, who migrates them: give services another role"
    assert str(refused.exception) == said
    restored = shell.invoke(app, ["restore", str(BACKUP)])
    assert restored.exit_code == 0, restored.output
