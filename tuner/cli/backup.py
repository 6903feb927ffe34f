"""`gemmtune backup` and `gemmtune restore`: copy a whole store to and from one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import Db, Json, OwnerDb, owner_url, store_as_it_is
from tuner.cli.output import say
from tuner.evidence.backup import restore_backup


def backup(
    file: Annotated[Path, typer.Argument(help="File to write, as in gemmtune.jsonl.gz; must not exist.")],
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Writes a consistent copy of the whole store to one file while services keep running.

    A store of an older version is copied as it is: back it up, then upgrade it.
    """
    with store_as_it_is(db) as store:
        counts = store.backup(file)
    _say(f"{file} has rows:", counts, as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="A file of `gemmtune backup`.")],
    db: OwnerDb = None,
    as_json: Json = False,
) -> None:
    """Fills an empty store from a backup, atomically; SQLite and PostgreSQL backups are interchangeable.

    On PostgreSQL the tables' owner restores. An older version's backup makes them anew, without the rights of another
    role, which `gemmtune migrate --for` grants again.
    """
    counts = restore_backup(file, owner_url(db))
    _say("restored rows:", counts, as_json)


def _say(what: str, counts: dict[str, int], as_json: bool) -> None:
    found = ", ".join(f"{table} {count:,}" for table, count in counts.items() if count)
    say(f"{what} {found or 'none'}", {"rows": counts}, as_json)
