"""Connections to SQLite: a write-ahead log, transactions that wait their turn, and a file that stays the same one."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Engine, event

#: Execution options: of connections that write, and of one that changes the schema.
WRITES: Final = "gemmtune_writes"
MIGRATES: Final = "gemmtune_migrates"
_BUSY_TIMEOUT_SECONDS: Final = 30
_ASK_AGAIN_SECONDS: Final = 0.01
#: Less free space than a small transaction takes.
_LEAST_BYTES: Final = 64 * 2**10
#: In a connection's `info`: whether it checks foreign keys.
_CHECKED: Final = "gemmtune_foreign_keys"
_Identity: TypeAlias = tuple[int, int]
#: Files whose logs are gone: in this process nothing can be done with them any more.
_LOGS_GONE: Final = set[_Identity]()
#: What a call is told whose file, or log, is not the one that was opened, and what to do.
_MOVED: Final = "its file was moved, deleted or replaced while it was open"
_LOG_GONE: Final = "its log was deleted while it was open"
FIXES: Final = {
    _MOVED: "end every process that has the store open, put the right file there, then start them again",
    _LOG_GONE: "start this process again; nobody may delete the …-wal and …-shm of an open store, and the process may "
               "read the file through gemmtune alone: if it opens and closes it by itself, it gives up its locks",
}  # fmt: skip


def engine_arguments() -> dict[str, Any]:
    """Arguments of `create_engine`."""
    return {"connect_args": {"timeout": _BUSY_TIMEOUT_SECONDS, "check_same_thread": False, "factory": _Connection}}


def watch(engine: Engine, path: Path | None) -> None:
    """Sets an engine's connections up.

    Args:
        path: the file, which must stay the same one; None for a store in memory.
    """
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    if path is not None:
        _stay_with(engine, path)


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later would fail if another process wrote in between; taking the write
    # lock at the start makes it wait its turn instead.
    options = connection.get_execution_options()
    # SQLite changes a table by replacing it, which foreign keys to it would forbid; it takes this before a transaction.
    # Only then: it makes SQLite plan every statement anew.
    checked = not options.get(MIGRATES)
    if connection.info.get(_CHECKED, True) != checked:
        connection.exec_driver_sql(f"PRAGMA foreign_keys={'ON' if checked else 'OFF'}")
        connection.info[_CHECKED] = checked
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITES, False) else "BEGIN")


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    # Turns off the driver's own transaction handling: `_begin` begins.
    connection.isolation_level = None
    cursor = connection.cursor()
    # Readers continue while one process writes. FULL syncs the log at every commit: a measurement reported as stored is
    # on disk, for a few milliseconds each, which is less than measuring again.
    write_ahead(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _stay_with(engine: Engine, path: Path) -> None:
    """Makes an engine refuse every call once its file or its log is another one, or gone.

    SQLite would go on with what it has open: what it writes into a file that was deleted ends with the process.
    """
    opened: _Identity | None = None
    # The log, and its index: through another index two processes write over one another's pages.
    logs = [Path(f"{path.resolve()}{ending}") for ending in ("-wal", "-shm")]

    def check(found: _Identity | None) -> None:
        if opened is not None and found != opened:
            raise sqlite3.OperationalError(_MOVED)
        # A new connection would share the index of the old log with those that are still open.
        if found in _LOGS_GONE:
            raise sqlite3.OperationalError(_LOG_GONE)

    def check_path(*_: object) -> None:
        check(_identity(path))

    def check_open(connection: _Connection, *_: object) -> None:
        found = _identity(path)
        if opened is not None and found != opened:
            # The log keeps its name: whoever opens the other file would mix its pages in. They belong to this one.
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            connection.look_for_its_log()
        check(found)

    def remember(connection: _Connection, _: object) -> None:
        nonlocal opened
        opened = opened or _identity(path)
        connection.opened, connection.logs = opened, dict.fromkeys(logs)

    event.listen(engine, "do_connect", check_path)
    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check_open)


class _Connection(sqlite3.Connection):
    """A connection that isn't closed without its log: SQLite would write the old one's pages over later ones.

    Attributes:
        opened: its file.
        logs: the files of its log, each with what tells it from another one of its name, once it is there.
    """

    opened: _Identity | None = None
    logs: Mapping[Path, _Identity | None] = {}

    def look_for_its_log(self) -> None:
        """Notes whether the log is gone: it stays as long as a connection is open, unless somebody deletes it or this
        process gave up its locks."""
        found = {log: _identity(log) for log in self.logs}
        self.logs = {log: known or found[log] for log, known in self.logs.items()}
        if self.opened and self.logs != found:
            _LOGS_GONE.add(self.opened)

    def close(self) -> None:
        with suppress(sqlite3.OperationalError):
            self.look_for_its_log()
        if self.opened in _LOGS_GONE:
            # Open as long as the process: Python closes what nobody refers to.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        else:
            super().close()


def _identity(path: Path) -> _Identity | None:
    """What tells a file from another one of its name; None without one.

    Raises:
        sqlite3.OperationalError: the file system doesn't say, as for a moment where it is on another machine.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error.strerror}") from error
    return found.st_dev, found.st_ino


def check_room(connection: Connection) -> None:
    """Refuses a file on a full disk, which nothing but a commit would notice; of other databases it knows nothing.

    Raises:
        sqlite3.OperationalError: as a commit would.
    """
    path = connection.engine.url.database
    if connection.dialect.name != "sqlite" or path in (None, "", ":memory:"):
        return
    with suppress(OSError):
        found = os.statvfs(path)
        blocks = found.f_bavail if os.geteuid() else found.f_bfree
        # Some file systems in user space know of no blocks at all.
        if found.f_blocks and blocks * found.f_frsize < _LEAST_BYTES:
            raise sqlite3.OperationalError("database or disk is full")


def write_ahead(cursor: sqlite3.Cursor) -> None:
    """Switches the file to a write-ahead log, permanently.

    SQLite ignores the timeout while the journal mode changes: of several processes that open a new file together, some
    fail at once because it is locked. This retries.
    """
    until = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(_ASK_AGAIN_SECONDS)
