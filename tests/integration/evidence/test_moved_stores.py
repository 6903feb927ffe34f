"""A SQLite file, or its log, that is moved, deleted or replaced while open: nothing is taken, and nothing is mixed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import ExportError, StoreError, StoreGone, TableError
from tuner.evidence import tokens
from tuner.evidence.backup import restore_backup
from tuner.evidence.store import Store
from tuner.files import export_file, is_database
from tuner.tables.tables import read_document

#: Another process: makes a token if it is given a name, then prints the names of all.
OTHER = """
import sys
from tuner.evidence import tokens
from tuner.evidence.store import Store
with Store.open(f"sqlite:///{sys.argv[1]}") as store:
    for name in sys.argv[2:]:
        tokens.make(store, name, ["read"])
    print(*(token.name for token in tokens.tokens(store)))
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
"""


def names_elsewhere(file: Path, *made: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", OTHER, str(file), *made], check=True, stdout=subprocess.PIPE, text=True)
    return ran.stdout.split()


def names(store: Store) -> list[str]:
    return [token.name for token in tokens.tokens(store)]


def replaced(file: Path) -> None:
    restore_backup(file.parent / "b.gz", f"sqlite:///{file.parent}/restored.db")
    (file.parent / "restored.db").rename(file)


@pytest.mark.parametrize("change", [
    replaced, Path.unlink, lambda file: file.rename(file.parent / "moved.db"),
], ids=["replaced", "deleted", "moved"])  # fmt: skip
def test_what_nobody_would_find_again_is_not_taken(tmp_path: Path, change: Callable[[Path], object]) -> None:
    file = tmp_path / "store.db"
    with Store.open(f"sqlite:///{file}") as store:
        tokens.make(store, "early", ["read"])
        store.backup(tmp_path / "b.gz")
        tokens.make(store, "late", ["read"])
        change(file)
        calls: list[Callable[[], object]] = [
            store.changed, store.check_writable, store.counts, lambda: tokens.make(store, "lost", ["read"]),
        ]  # fmt: skip
        for call in calls * 2:
            with pytest.raises(StoreError, match=r"its file was moved, deleted or replaced .*: end every process"):
                call()
    # What was committed is in the file that had it, and nothing of it in the other one.
    if (moved := tmp_path / "moved.db").exists():
        with Store.open(f"sqlite:///{moved}") as store:
            assert names(store) == ["early", "late"]
    if file.exists():
        with Store.open(f"sqlite:///{file}") as store:
            assert names(store) == ["early"]
            tokens.make(store, "next", ["read"])
            with store._engine.connect() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


CLOSES = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM token').fetchall(); c.close()"


def closed_elsewhere(file: Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSES, str(file)], check=True)


def test_what_looks_at_a_store_keeps_the_locks_of_those_that_have_it_open(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store.open(f"sqlite:///{file}") as store:
        tokens.make(store, "early", ["read"])
        assert is_database(file)
        with pytest.raises(TableError, match="is a database, perhaps a store, not a table"):
            read_document(file)
        with pytest.raises(ExportError, match="is a database"):
            export_file(file, b"")
        closed_elsewhere(file)
        tokens.make(store, "late", ["read"])
        with Store.open(f"sqlite:///{file}", create=False) as other:
            assert names(other) == ["early", "late"]


def test_a_log_that_another_process_deleted_takes_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store.open(f"sqlite:///{file}") as store:
        tokens.make(store, "early", ["read"])
        file.read_bytes()
        closed_elsewhere(file)
        for _ in range(2):
            with pytest.raises(StoreError, match=r"its log was deleted while it was open.*: start this process again"):
                tokens.make(store, "lost", ["read"])
    assert names_elsewhere(file) == ["early"]


def test_where_the_index_of_the_log_was_deleted_no_process_writes_over_anothers_pages(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store.open(f"sqlite:///{file}") as store:
        tokens.make(store, "early", ["read"])
        Path(f"{file}-shm").unlink()
        assert names_elsewhere(file, "other") == ["early", "other"]
        with pytest.raises(StoreGone, match=r"its log was deleted while it was open"):
            tokens.make(store, "lost", ["read"])
    # Neither did what it closed, and it opens the file no more.
    with pytest.raises(StoreGone, match="start this process again"):
        Store.open(f"sqlite:///{file}")
    assert names_elsewhere(file) == ["early", "other"]


def test_a_file_system_that_does_not_answer_for_a_moment_moved_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, stat = tmp_path / "store.db", Path.stat

    def stale(path: Path, **how: Any) -> Any:  # noqa: ANN401
        if path == file:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **how)

    with Store.open(f"sqlite:///{file}") as store:
        with monkeypatch.context() as away:
            away.setattr(Path, "stat", stale)
            with pytest.raises(StoreError, match=r"unable to open database file: Stale file handle") as told:
                store.counts()
        assert not isinstance(told.value, StoreGone)
        assert names(store) == []
