"""The migrations make exactly the tables that the models describe, and can be undone."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from tuner.evidence import sqlite
from tuner.evidence.database import current_revision, migrate, migrating, open_engine
from tuner.evidence.revisions import MIGRATIONS, VERSION_TABLE, known_revisions, newest_revision
from tuner.evidence.schema import METADATA


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url, create=True)
    yield opened
    opened.dispose()


def is_ours(name: str | None, kind: str, parents: object) -> bool:
    """The queue's tables are its engine's."""
    return not (kind == "table" and (name or "").startswith("procrastinate_"))


def test_the_names_of_the_migrations_are_the_revisions_in_order() -> None:
    scripts = ScriptDirectory(MIGRATIONS)
    assert tuple(each.revision for each in scripts.walk_revisions())[::-1] == known_revisions()


def test_migrations_and_models_agree(engine: Engine) -> None:
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "include_name": is_ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


def test_migrations_go_down_and_up_again(engine: Engine) -> None:
    with migrating(engine) as connection:
        migrate(connection, "base")
    assert set(inspect(engine).get_table_names()) <= {VERSION_TABLE}
    with migrating(engine) as connection:
        migrate(connection, "head")
    assert set(METADATA.tables) <= set(inspect(engine).get_table_names())


def test_a_sqlite_store_opens_while_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_engine(f"sqlite:///{tmp_path}/t.db", create=True).dispose()
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        open_engine(f"sqlite:///{tmp_path}/t.db", create=False).dispose()


def test_threads_may_create_stores_at_the_same_time(tmp_path: Path) -> None:
    # Alembic's `context` and `op` are module globals: without turns, one thread migrates another's store.
    at_once = threading.Barrier(8)

    def created(number: int) -> str | None:
        at_once.wait()
        engine = open_engine(f"sqlite:///{tmp_path}/{number}.db", create=True)
        with engine.connect() as connection:
            revision = current_revision(connection)
        engine.dispose()
        return revision

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(created, range(8))) == {newest_revision()}
