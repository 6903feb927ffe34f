"""Backup and restore: a store as one file of JSON lines, from either kind of database into either.

The first line names schema revision and tables, each row is one line, and the last line holds the number of rows and a
digest of all lines before it, so a truncated file is never restored. The queue is derived and not included: the
restored store rebuilds it when it is next served.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    LargeBinary,
    MetaData,
    Table,
    delete,
    func,
    insert,
    inspect,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, ProgrammingError, StatementError

from tuner.errors import StoreError
from tuner.evidence import changes
from tuner.evidence.codec import utc
from tuner.evidence.database import (
    FAILURES,
    check_known,
    connect,
    current_revision,
    in_memory,
    migrate,
    migrating,
    shown,
    unusable,
)
from tuner.evidence.postgresql import allow_pauses
from tuner.evidence.schema import METADATA
from tuner.files import is_endless, whole_file
from workers.errors import make_room_or

SCHEMA: Final = "gemmtune.backup/1"
_ROWS: Final = 500
#: Rows are inserted once their lines are longer together: of the longest ones, 500 would not fit into memory.
_MOST_PENDING_BYTES: Final = 16 * 2**20
#: Upper bound on a line; a hundred measurements would fit.
_MOST_LINE_BYTES: Final = 16 * 2**20
#: Errors of a database that a row causes.
_REFUSALS: Final = (IntegrityError, DataError, ProgrammingError, InterfaceError)
#: More than the workers that register between a backup and its restore. They still call by the numbers that they got:
#: one with a number that another gets now would take that one's rounds.
_LATER_WORKERS: Final = 100_000


def write_backup(engine: Engine, path: Path) -> dict[str, int]:
    """Writes a snapshot of the whole store; returns the number of rows by table.

    Raises:
        StoreError: the file exists or cannot be written, or the store cannot be read or has no tables.
    """
    try:
        if path.exists():
            raise _taken(path)
        with (
            whole_file(path, mode=0o600, replace=False) as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as lines,
        ):
            return _write(engine, lines)
    except OSError as error:
        # Another backup may have been written there meanwhile.
        if isinstance(error, FileExistsError) and os.path.lexists(path):
            raise _taken(path) from error
        fix = make_room_or("give another file", error)
        raise StoreError(f"{path} can't be written ({error.strerror}): {fix}") from error
    except FAILURES as error:
        raise unusable(str(engine.url), error) from error


def _taken(path: Path) -> StoreError:
    return StoreError(f"{path} exists: a backup never overwrites; give another file")


def restore_backup(path: Path, url: str) -> dict[str, int]:
    """Fills an empty store from a backup, completely or not at all; returns the number of rows by table.

    Raises:
        StoreError: the file is damaged or of a newer version, it has what no store can hold, or the store is not empty.
    """
    if is_endless(path):
        raise StoreError(f"{path} is a pipe or a device, and a backup is read twice: save it as a file first")
    # Read completely before anything is written, so a damaged file leaves no trace.
    rows = sum(1 for _ in _lines(path)) - 1
    lines = _lines(path)
    header, _ = next(lines)
    revision = str(header.get("revision"))
    # Before there is a file: an empty one would be read as a store.
    check_known(revision, "the backup")
    engine = connect(url)
    try:
        with _no_empty_file(engine), migrating(engine, broken="use another backup") as connection:
            _check_empty(connection, url)
            if current_revision(connection) not in (None, revision):
                # The tables may be newer than the rows, whose migration would be skipped.
                migrate(connection, "base")
            migrate(connection, revision)
            counts = _fill(connection, lines)
            if sum(counts.values()) != rows:
                raise StoreError(f"{path} changed while it was read: restore from a file that nothing writes")
            migrate(connection, "head")
            if lost := changes.missing(connection):
                raise StoreError(f"the backup lacks the counters {', '.join(lost)}: use another backup")
            changes.mark_restored(connection)
    except FAILURES as error:
        raise unusable(url, error) from error
    return counts


@contextmanager
def _no_empty_file(engine: Engine) -> Iterator[None]:
    """Disposes of an engine. What fails leaves no file that was not there: it would be read as an empty store."""
    in_file = engine.dialect.name == "sqlite" and not in_memory(str(engine.url))
    path, empty = Path(engine.url.database or ""), False
    new = in_file and not path.exists()
    try:
        yield
    except BaseException:
        if new:
            # Another process may have filled it since.
            with suppress(*FAILURES), engine.connect() as connection:
                empty = current_revision(connection) is None
        raise
    finally:
        engine.dispose()
        if empty:
            path.unlink(missing_ok=True)


def _write(engine: Engine, lines: gzip.GzipFile) -> dict[str, int]:
    digest, counts = hashlib.sha256(), dict[str, int]()

    def line(document: Mapping[str, Any]) -> None:
        data = json.dumps(document, separators=(",", ":"), default=_plain).encode() + b"\n"
        digest.update(data)
        lines.write(data)

    snapshot = (
        engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")
    )
    with snapshot.begin() as connection:
        allow_pauses(connection)
        revision = current_revision(connection)
        if revision is None:
            raise StoreError("the store has no tables: there is nothing to back up")
        tables = _tables(connection)
        line({"schema": SCHEMA, "revision": revision, "at": datetime.now(UTC).isoformat(), "tables": list(tables)})
        for name, table in tables.items():
            counts[name] = 0
            for row in _rows(connection, table):
                line({"table": name, "row": row})
                counts[name] += 1
    lines.write(json.dumps({"rows": sum(counts.values()), "digest": digest.hexdigest()}).encode() + b"\n")
    return counts


def _rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Rows in the order of their primary key, streamed."""
    query = select(*table.columns).order_by(*table.primary_key)
    if table.name == "worker" and inspect(connection).has_table("procrastinate_workers"):
        # The queue, which no backup has, keeps the heartbeats: a round is charged until its worker's last one.
        heard: ColumnElement[datetime] = literal_column(
            "(SELECT last_heartbeat FROM procrastinate_workers WHERE id = worker.engine_id)"
        )
        query = query.with_only_columns(*(
            func.coalesce(heard, column).label("beat_at") if column.name == "beat_at" else column
            for column in table.columns
        ))  # fmt: skip
    for row in connection.execution_options(yield_per=_ROWS).execute(query).mappings():
        yield dict(row)


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The header and the rows of a backup, each with the length of its line.

    Raises:
        StoreError: it is not a backup, or damaged; raised after the last row at the latest.
    """
    digest, rows = hashlib.sha256(), 0
    try:
        with gzip.open(path, "rb") as file:
            while data := file.readline(_MOST_LINE_BYTES):
                document = json.loads(data)
                if "digest" in document:
                    if document != {"rows": rows - 1, "digest": digest.hexdigest()}:
                        raise StoreError(f"{path} is damaged: its digest differs; use another backup")
                    if file.readline(1):
                        raise StoreError(f"{path} goes on after its last line, as several backups in one file do: "
                                         "restore each into a store of its own")  # fmt: skip
                    return
                if not rows and document.get("schema") != SCHEMA:
                    found = document.get("schema")
                    raise StoreError(f"{path} is not a backup of this version: its schema is {found!r}, not {SCHEMA!r}")
                if rows and not (isinstance(document.get("table"), str) and isinstance(document.get("row"), dict)):
                    raise ValueError(f"its line {rows + 1} is no row of a table")
                digest.update(data)
                rows += 1
                yield document, len(data)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} can't be read as a backup ({error}): use another one") from error
    raise StoreError(f"{path} ends before its last line: it was cut short; use another backup")


def _check_empty(connection: Connection, url: str) -> None:
    there = [table for table in METADATA.sorted_tables if inspect(connection).has_table(table.name)]
    if there and connection.dialect.name == "postgresql":
        # It stays empty until the end; on SQLite nobody else writes meanwhile.
        connection.execute(text(f"LOCK TABLE {', '.join(table.name for table in there)} IN SHARE ROW EXCLUSIVE MODE"))
    for table in there:
        if table.name != "counter" and connection.scalar(select(func.count()).select_from(table)):
            raise StoreError(f"the store {shown(url)} has rows: restore into an empty one, then switch to it")


def _fill(connection: Connection, lines: Iterator[tuple[dict[str, Any], int]]) -> dict[str, int]:
    tables = _tables(connection)
    counts, pending, pending_bytes, name = dict[str, int](), list[dict[str, Any]](), 0, ""
    if "counter" in tables:
        # The migration inserted initial rows; the backup has the current ones. The first schema had no counters.
        connection.execute(delete(tables["counter"]))
    for document, length in lines:
        full = len(pending) >= _ROWS or pending_bytes + length > _MOST_PENDING_BYTES
        if document["table"] != name or full:
            _insert(connection, tables.get(name), pending)
            name, pending, pending_bytes = document["table"], [], 0
        if name not in tables:
            raise StoreError(f"the backup has a table {name!r} that this version does not know: upgrade gemmtune")
        pending.append(document["row"])
        pending_bytes += length
        counts[name] = counts.get(name, 0) + 1
    _insert(connection, tables.get(name), pending)
    if connection.dialect.name == "postgresql":
        # An older backup's schema lacks the newest tables.
        _move_sequences(connection, [table for name, table in tables.items() if name in counts or name == "worker"])
    return counts


def _tables(connection: Connection) -> dict[str, Table]:
    """The tables that the database has of this version's, in order, with its columns: migrations make and drop some."""
    there, made = inspect(connection), MetaData()
    return {
        table.name: Table(table.name, made, *(
            Column(name, ours.type if (ours := table.columns.get(name)) is not None else column["type"],
                   primary_key=name in table.primary_key.columns)
            for column in there.get_columns(table.name) if (name := column["name"])
        ))
        for table in METADATA.sorted_tables if there.has_table(table.name)
    }  # fmt: skip


def _insert(connection: Connection, table: Table | None, rows: Sequence[dict[str, Any]]) -> None:
    if table is None or not rows:
        return
    moments = [column.name for column in table.columns if isinstance(column.type, DateTime)]
    binaries = [column.name for column in table.columns if isinstance(column.type, LargeBinary)]
    try:
        for row in rows:
            if unknown := row.keys() - table.columns.keys():
                raise ValueError(f"there is no column {min(unknown)!r}")
            row |= {name: datetime.fromisoformat(row[name]) for name in moments if row.get(name)}
            row |= {name: base64.b64decode(row[name]) for name in binaries if row.get(name)}
            # The queue is not in the backup: its numbers mean nothing here.
            row |= {name: None for name in ("job_id", "engine_id") if name in row}
        connection.execute(insert(table), list(rows))
    except (StatementError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, DBAPIError) and not isinstance(error, _REFUSALS):
            raise  # of the store, such as a full disk
        cause = (error.orig if isinstance(error, StatementError) else None) or error
        said = str(cause).splitlines()[0]
        raise StoreError(
            f"the backup has a row of {table.name} that can't be stored ({said}): use another backup"
        ) from error


def _move_sequences(connection: Connection, tables: Sequence[Table]) -> None:
    """Continues every id sequence after the restored rows."""
    for table in tables:
        if "id" in table.columns:
            highest = connection.scalar(select(func.max(table.c.id))) or 0
            highest += _LATER_WORKERS if table.name == "worker" else 0
            sequence = connection.scalar(select(func.pg_get_serial_sequence(table.name, "id")))
            if sequence and highest:
                connection.execute(text("SELECT setval(:name, :value)"), {"name": sequence, "value": highest})


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return utc(value).isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not a column type of ours")
