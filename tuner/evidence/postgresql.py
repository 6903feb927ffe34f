"""Connections to PostgreSQL that end when the server stops answering, and the pool that holds them.

A server may hang, fail over or vanish without closing a connection. The kernel notices a dead host (keepalives and
`tcp_user_timeout`); the server ends its own slow statements and lock waits; and where something between us and the
server accepts bytes and forwards none, the client itself gives up after a silence.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

if TYPE_CHECKING:
    from tuner.evidence.watched_connection import WatchedConnection

#: Connections that one process opens at most, by default; services and commands share the server's `max_connections`.
MOST_CONNECTIONS: Final = 32
#: Of these, connections for heartbeats and other notes.
NOTE_CONNECTIONS: Final = 4
_CONNECT_TIMEOUT_SECONDS: Final = 5
#: How long a call waits for a free connection.
_POOL_TIMEOUT_SECONDS: Final = 10
#: Noticed by the kernel: a host that is gone while we wait for an answer (5 + 3 * 2 s) or while we send (10 s).
_TCP: Final = {
    "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000,
}  # fmt: skip
#: Settings of every session; times in milliseconds. When the path between us and the server breaks, the server's
#: session keeps its locks until one of them ends it; a caller who waits for such a lock outwaits the session.
_SESSION: Final = {
    "statement_timeout": 20_000, "lock_timeout": 10_000, "idle_in_transaction_session_timeout": 8_000,
    "client_connection_check_interval": 2_000, "tcp_keepalives_idle": 5, "tcp_keepalives_interval": 2,
    "tcp_keepalives_count": 3, "tcp_user_timeout": 10_000, "timezone": "UTC",
}  # fmt: skip
#: How long the server may be silent in a transaction of a few short statements, each of which may wait for a lock.
SHORT_SECONDS: Final = 12.0
#: Longest statement of a note, and longest silence.
_NOTE_MILLISECONDS: Final = 5_000
_NOTE_SILENCE_SECONDS: Final = 6.0
#: Longest silence in a call that reads or writes one row.
QUICK_SECONDS: Final = 3.0
#: A connection used this recently is assumed to work: no server restarts faster.
_TRUSTED_SECONDS: Final = 0.1
_USED_AT: Final = "gemmtune_used_at"
_POOL: Final = "gemmtune_pool"
_ENGINES: Final = WeakSet[Engine]()
#: Words in an error or its SQLSTATE; the sentence to show, if not the error's own; and the fix.
_OF_POSTGRESQL: Final = (
    (("53100",), "its disk is full", "free space on the server; everything committed before is kept"),
    (("25006",), "it accepts no writes", "it is a standby or read-only: point GEMMTUNE_DB at the primary"),
    (("55P03",), "a lock was held for too long", "another session holds it; see pg_stat_activity, and end that one"),
    (("57014",), "a statement took too long", "see pg_stat_activity for what slows the server down"),
    (("53300", "too many clients"), "it has no free connection",
     "raise max_connections, or lower GEMMTUNE_DB_CONNECTIONS of each service"),
    (("QueuePool",), "all connections of this process are in use",
     "try again in a second; if this persists, raise GEMMTUNE_DB_CONNECTIONS"),
    (("28P01", "28000", "authentication failed", "no password supplied", 'FATAL:  role "'), "it refused the login",
     "check user and password in GEMMTUNE_DB"),
    (("pg_hba.conf",), "it takes no connection of this user from here, or none of this encryption",
     "allow it in the server's pg_hba.conf, or set sslmode in GEMMTUNE_DB"),
    (("3D000", 'FATAL:  database "'), "it has no such database, or nobody may connect to it",
     "check the name in GEMMTUNE_DB or --db, and create the database"),
    (("57P03", "FATAL:  the database system is"), "it is starting or shutting down",
     "try again in a minute; connections reopen automatically"),
    (("42501",), "the role lacks a right",
     "`gemmtune migrate --for ROLE` as the tables' owner grants it; only the owner restores"),
    (("was silent",), "it stopped answering",
     "check the server and the network; connections reopen automatically"),
)


def pool_arguments(size: int, notes: bool = False) -> dict[str, Any]:
    """Arguments of `create_engine`.

    Args:
        size: most connections.
        notes: for notes, which wait neither for the disk nor for long.
    """
    session = _SESSION
    if notes:
        session = _SESSION | {"synchronous_commit": "off", "statement_timeout": _NOTE_MILLISECONDS}
    return {
        # All are kept, because opening a connection costs more than a call. The one used last is reused first, because
        # its statements are prepared.
        "pool_size": size,
        "max_overflow": 0,
        "pool_timeout": _POOL_TIMEOUT_SECONDS,
        "pool_use_lifo": True,
        "connect_args": _TCP | {
            "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "options": " ".join(f"-c {name}={value}" for name, value in session.items()),
            "application_name": "gemmtune",
        },
    }  # fmt: skip


def watch(engine: Engine, notes: bool = False) -> Engine:
    """Makes an engine's connections `WatchedConnection`s, tested after a pause before their next use.

    SQLAlchemy's `pool_pre_ping` tests before every use, which adds a round trip to the few of a claim.
    """

    # A store on SQLite opens sooner without psycopg.
    import psycopg

    from tuner.evidence.watched_connection import SILENCE_SECONDS, WatchedConnection

    usual_seconds = _NOTE_SILENCE_SECONDS if notes else SILENCE_SECONDS

    def connect(_: object, record: ConnectionPoolEntry, arguments: list[Any], named: dict[str, Any]) -> DBAPIConnection:
        record.info[_POOL] = engine.pool
        return cast(DBAPIConnection, WatchedConnection.connect(*arguments, **named))

    def idle(connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info[_USED_AT] = time.monotonic()
        if connection is not None and record.info[_POOL] is not engine.pool:
            # The engine was disposed of while the connection was in use, so nobody will take it from its pool again.
            connection.close()

    def wanted(connection: WatchedConnection, record: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        used_at = record.info.get(_USED_AT)
        if used_at is not None and time.monotonic() - used_at >= _TRUSTED_SECONDS:
            connection.silence_seconds = QUICK_SECONDS
            try:
                engine.dialect.do_ping(cast(DBAPIConnection, connection))
            except psycopg.Error as error:
                # Discards all connections of the same age too.
                raise InvalidatePoolError(str(error)) from error
        connection.silence_seconds = usual_seconds

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkin", idle)
    event.listen(engine, "checkout", wanted)
    _ENGINES.add(engine)
    return engine


def _begin_anew() -> None:
    """Gives a forked child pools of its own: through one connection two processes get one another's answers."""
    for engine in _ENGINES:
        # Closing them would end the parent's sessions.
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_begin_anew)


def allow_silence(connection: Connection, seconds: float | None) -> None:
    """Sets how long the server may be silent until the connection is back in its pool; SQLite never is."""
    if connection.dialect.name == "postgresql":
        cast("WatchedConnection", connection.connection.driver_connection).silence_seconds = seconds


def allow_pauses(connection: Connection) -> None:
    """Lets this transaction pause for a minute between two statements, as where every row of a table is written out."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '1min'")


def plan_for_all_rows(connection: Connection) -> None:
    """Plans this transaction's cursors to be read to their end.

    PostgreSQL plans a cursor for its first tenth (`cursor_tuple_fraction`): index scans in order, which take far longer
    for a million rows than a join and a sort.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL cursor_tuple_fraction = 1")


def explained(said: str, state: str | None) -> tuple[str, str]:
    """The problem and its fix, in our own words if the server's or libpq's name a host or a user.

    Args:
        said: the whole error, which has a line for each address that was tried.
        state: its SQLSTATE, which refused connections lack.
    """
    for words, told, fix in _OF_POSTGRESQL:
        if any(word in said or word == state for word in words):
            return told or said.splitlines()[0], fix
    if state is None or state.startswith(("08", "57P")):
        return "it can't be reached", "start PostgreSQL and check host, port, user and password in GEMMTUNE_DB or --db"
    return said.splitlines()[0], "see the server's log, or give another database in GEMMTUNE_DB"
