"""Another store in the place of one that services and clients go on with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from tuner.evidence.backup import restore_backup


def put_in_place(backup: Path, url: str) -> None:
    """Restores a backup into the store at `url`, in place of what it has."""
    if url.startswith("sqlite"):
        restored = backup.with_suffix(".restored")
        restore_backup(backup, f"sqlite:///{restored}")
        copy_over(restored, Path(url.removeprefix("sqlite:///")))
        return
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    restore_backup(backup, url)


def copy_over(source: Path, target: Path) -> None:
    """Gives a SQLite file, which may be open, the content of another, byte for byte: nothing tells that it's new."""
    with closing(sqlite3.connect(source)) as other, closing(sqlite3.connect(target)) as now:
        other.backup(now)
