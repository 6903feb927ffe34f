"""Opening a database: engine settings, and migrations to this version's schema."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
from sqlalchemy import Connection, Engine, create_engine, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, SQLAlchemyError

from tuner.errors import StoreError, StoreGone
from tuner.evidence import sqlite
from tuner.evidence.postgresql import (
    MOST_CONNECTIONS,
    NOTE_CONNECTIONS,
    allow_pauses,
    allow_silence,
    explained,
    pool_arguments,
    watch,
)
from tuner.evidence.revisions import MIGRATIONS, VERSION_TABLE, known_revisions, newest_revision
from tuner.evidence.sqlite import MIGRATES, WRITES
from tuner.files import is_endless

#: Errors of a database that cannot be used; SQLite's own come from setting up a new connection.
FAILURES: Final = (SQLAlchemyError, sqlite3.Error)
_FORMS: Final = "give a path to a SQLite file, sqlite:///… or postgresql://user:password@host/name"
#: Advisory lock held while a PostgreSQL schema changes, so services that start together migrate in turn.
_MIGRATION_LOCK: Final = 0x67656D6D
#: Alembic keeps the migration that runs in module globals: threads that open stores migrate them in turn.
_ALEMBIC: Final = threading.Lock()


def open_engine(url: str, create: bool, most: int = MOST_CONNECTIONS) -> Engine:
    """An engine on a database whose schema is current.

    Args:
        most: connections to PostgreSQL, including those of `engine_for_notes`.

    Raises:
        StoreError: unknown URL, no such file, not a database, or a schema newer than this version's.
    """
    engine = connect(url, create, most)
    try:
        if not _is_current(engine):
            with migrating(engine) as connection:
                migrate(connection, "head")
    except StoreError:
        engine.dispose()
        raise
    except FAILURES as error:
        engine.dispose()
        raise unusable(url, error) from error
    return engine


def _is_current(engine: Engine) -> bool:
    """Whether nothing has to be migrated, as a reader of SQLite sees at once, whoever writes meanwhile.

    PostgreSQL's schema is looked at in the turn of migrations: a restore may be changing it.
    """
    if engine.dialect.name != "sqlite":
        return False
    with engine.connect() as connection:
        return current_revision(connection) == newest_revision()


def connect(url: str, create: bool = True, most: int = MOST_CONNECTIONS) -> Engine:
    """An engine on a database with any schema.

    Args:
        most: connections to PostgreSQL, including those of `engine_for_notes`.

    Raises:
        StoreError: unknown URL, no such file, or one of another program.
    """
    _check_file(url, create)
    try:
        engine = create_engine(url, json_deserializer=_parsed, **_arguments(url, most))
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise StoreError(f"{shown(url)} is not a database URL that we can open ({error}): {_FORMS}") from error
    if engine.dialect.name == "sqlite":
        sqlite.watch(engine, None if in_memory(url) else Path(engine.url.database or "").absolute())
    else:
        watch(engine)
    return engine


def engine_for_notes(engine: Engine) -> Engine:
    """An engine on the same database for single statements that a crash may lose, such as heartbeats.

    Each is its own transaction. On PostgreSQL it neither waits for the disk nor tests the connection first: a thousand
    workers send a heartbeat every five seconds.
    """
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{WRITES: True})
    arguments = pool_arguments(NOTE_CONNECTIONS, notes=True)
    return watch(create_engine(engine.url, isolation_level="AUTOCOMMIT", **arguments), notes=True)


@contextmanager
def migrating(engine: Engine, broken: str = "restore a backup") -> Iterator[Connection]:
    """A transaction for `migrate`, with foreign keys checked at its end if it changed anything.

    No other one runs at the same time: what it finds of the schema stays so.

    Args:
        broken: what to do about rows that point at nothing.

    Raises:
        StoreError: rows are left that point at nothing; nothing was changed.
    """
    opened = engine.execution_options(**{WRITES: True, MIGRATES: True}).begin()
    # A large table takes its time.
    with opened as connection:
        allow_silence(connection, None)
        if engine.dialect.name == "postgresql":
            allow_pauses(connection)
            # Another service may migrate a large table first.
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
        before = _state(connection)
        yield connection
        # The check reads every row: for a million bests it takes longer than the rest of a start.
        if engine.dialect.name == "sqlite" and _state(connection) != before:
            lost = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if lost:
                raise StoreError(
                    f"{len(lost)} rows of {lost[0][0]} point at rows of {lost[0][2]} that are gone: {broken}"
                )


def _state(connection: Connection) -> tuple[str | None, int]:
    """The schema's revision, and on SQLite the rows that this connection has changed."""
    changed = getattr(connection.connection.driver_connection, "total_changes", 0)
    return current_revision(connection), changed


def migrate(connection: Connection, revision: str) -> None:
    """Brings the schema up or down to a revision, in the transaction of `migrating`; `head` is this version's.

    Raises:
        StoreError: the database is at a revision that this version does not know. Nothing was changed.
    """
    now = current_revision(connection)
    if now is not None and revision == "head" and now == newest_revision():
        return
    check_known(now, "the store")
    # Importing Alembic takes longer than opening a store, and few stores have to be migrated.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    step = command.downgrade if revision == "base" or revision.startswith("-") else command.upgrade
    with _ALEMBIC:
        step(config, revision)


def check_known(revision: str | None, what: str) -> None:
    """Refuses what a newer version wrote.

    Raises:
        StoreError: this version has no such revision.
    """
    if revision is not None and revision not in known_revisions():
        raise StoreError(
            f"{what} has schema {revision}, newer than this gemmtune, which knows {newest_revision()}: upgrade "
            f"gemmtune, or use another store"
        )


def current_revision(connection: Connection) -> str | None:
    """The schema's revision; None before the first migration."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return found


def unusable(url: str, error: Exception) -> StoreError:
    """One sentence, with a fix, for a database that fails.

    Of PostgreSQL it names neither host nor user: clients of the service read it. The cause, which the log has, does.
    """
    cause = error.orig if isinstance(error, DatabaseError) and error.orig else error
    whole = str(cause) or type(cause).__name__
    if make_url(url).get_backend_name() == "postgresql":
        said, fix = explained(whole, getattr(cause, "sqlstate", None))
        return StoreError(f"the PostgreSQL database can't be used ({said}): {fix}")
    said = whole.splitlines()[0]
    if said in sqlite.FIXES:
        return StoreGone(f"the store {shown(url)} can't be used ({said}): {sqlite.FIXES[said]}")
    fix = "move the file away, restore a backup, or give another with --db"
    if "disk is full" in said:
        fix = "free space; everything committed before is kept"
    elif "disk I/O" in said:
        # Of a quota, of a limit on the size of files, of a disk that fails, and of an index that a full one can't hold.
        fix = "free space, or see what ends the file (quota, `ulimit -f`, disk); everything committed before is kept"
    elif "readonly" in said or "unable to open" in said:
        fix = "make the file and its folder writable, or give another with --db"
    elif "not a database" in said:
        fix = "it is not a gemmtune store: give another with --db"
    elif "QueuePool" in said:
        said, fix = "all connections of this process are in use", "try again in a second"
    elif "locked" in said:
        fix = "another process has locked it for too long; stop that process"
    return StoreError(f"the store {shown(url)} can't be used ({said}): {fix}")


def shown(url: str) -> str:
    """A database URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


def in_memory(url: str) -> bool:
    """Whether a URL names a database that ends with its connection."""
    parsed = make_url(url)
    return parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:")


def _check_file(url: str, create: bool) -> None:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # A port that is no number is a ValueError.
        written = re.sub(r"(://[^/:@]*:)[^@]*@", r"\1***@", url)
        raise StoreError(f"{written!r} is not a database URL: {_FORMS}") from error
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(f"{shown(url)} is not a database that we support: {_FORMS}")
    if parsed.get_backend_name() != "sqlite":
        return
    if parsed.query:
        # SQLAlchemy drops `mode=ro`, and opens another file than its path if `uri` is given.
        raise StoreError(f"{shown(url)}: a SQLite store takes no parameters, such as {min(parsed.query)}: give "
                         "sqlite:///PATH alone")  # fmt: skip
    if in_memory(url) or not parsed.database:
        return
    path = Path(parsed.database)
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a SQLite file: give a file in it, such as {path}/gemmtune.db")
        if is_endless(path):
            raise StoreError(f"{path} is a pipe or a device, not a SQLite file: give another path with --db")
        if not path.exists() and not create:
            raise StoreError(f"{path} is not there: `gemmtune tune` creates it, or give another with --db")
        if not create and path.stat().st_size == 0:
            raise StoreError(f"{path} is empty, not a store: `gemmtune tune` fills it, or give another with --db")
    except OSError as error:
        raise StoreError(f"{path} can't be opened ({error.strerror}): give another path with --db") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{path.parent} cannot be created ({error.strerror}): give a writable path with --db"
        ) from error
    _check_ours(path)


def _check_ours(path: Path) -> None:
    """Refuses a SQLite file of another program: opening it would change its journal, and a migration add our tables.

    Raises:
        StoreError: it has tables, and none that says which schema of ours it has.
    """
    try:
        if not path.is_file():
            return
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=0, uri=True)) as connection:
            found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.Error, OSError):
        return  # opening it says why
    if found and VERSION_TABLE not in found:
        raise StoreError(f"{path} is a database of another program, with the table {min(found)}, not a gemmtune store: "
                         "give another with --db")  # fmt: skip


def _arguments(url: str, most: int) -> dict[str, Any]:
    if make_url(url).get_backend_name() == "sqlite":
        return sqlite.engine_arguments()
    return pool_arguments(max(1, most - NOTE_CONNECTIONS))


def _parsed(text: str | bytes) -> Any:  # noqa: ANN401  (a JSON value)
    """A JSON column's value."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # It refuses NaN, which other programs may have stored; who reads the value judges it.
        try:
            return json.loads(text)
        except ValueError:
            # SQLite stores any text.
            return None
