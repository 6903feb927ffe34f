"""Stores as benchmarks read them: what backups hold, or nothing."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.command import WrongInput
from tuner.evidence.backup import restore_backup
from tuner.evidence.store import Store
from tuner.settings import database_url


def add_from(options: argparse.ArgumentParser) -> None:
    """Adds `--from BACKUP`, which fills a store for `restore_missing`."""
    options.add_argument(
        "--from", dest="backup", type=Path, metavar="BACKUP", help="restored first, where the store does not exist"
    )


def restore_missing(db: str, backup: Path | None) -> None:
    """Fills the store `db` from a backup, where there is one and not yet a store."""
    if backup and not Path(db).exists():
        restore_backup(backup, database_url(db))


@contextmanager
def restored(backup: Path, folder: Path) -> Iterator[Store]:
    """The store that a backup holds, as a SQLite file in `folder`."""
    url = database_url(str(folder / f"{backup.name}.db"))
    restore_backup(backup, url)
    with Store.open(url) as store:
        yield store


@contextmanager
def empty_store() -> Iterator[Path]:
    """The file of a store that holds nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        Store.open(database_url(str(path)), create=True).close()
        yield path


def stores_in(folder: Path) -> Iterator[Store]:
    """The stores whose backups a folder holds, one after the other, by the names of their files.

    Raises:
        WrongInput: it holds none.
    """
    if not (backups := sorted(folder.iterdir())):
        raise WrongInput(f"{folder} is empty: give a folder with files of `gemmtune backup`")
    with tempfile.TemporaryDirectory() as work:
        for path in backups:
            with restored(path, Path(work)) as store:
                yield store
