"""A SQLite file that is moved, deleted or replaced while it is open: nothing more is taken, and nothing is mixed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.evidence import tokens
from tuner.evidence.backup import restore_backup
from tuner.evidence.store import Store


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
