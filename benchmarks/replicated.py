"""PostgreSQL with a synchronous standby: the standby takes over when the primary is cut off.

A commit is acknowledged only when both servers have it on disk, so a failover loses none.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import psycopg
from sqlalchemy.engine import make_url

from benchmarks.postgres import Postgres, new_folder
from benchmarks.silent_proxy import SilentProxy

_WAIT_SECONDS: Final = 120.0


class Server:
    """A server on a folder of data; its socket is in the same folder.

    Args:
        programs: folder of the server's programs.
        user: who runs it; None for this process's user.
    """

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self.folder, self._programs, self._user = folder, programs, user
        self._stopped: list[psutil.Process] = []

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of the server's programs."""
        command = [str(self._programs / program), *arguments]
        # Its output goes to no pipe, which the server would keep open.
        subprocess.run(command, user=self._user, cwd="/", check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)  # fmt: skip

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = f'-h "" -k {self.folder}'

        def started() -> bool:
            if not self._processes():
                self.run("pg_ctl", "-w", "-o", options, "-l", str(self.folder / "log"), "-D", str(self.folder), "start")
            return bool(self.execute("SELECT 1"))

        _until(started)

    def stop(self) -> None:
        """Stops it, ending every connection."""
        self.run("pg_ctl", "-w", "-m", "fast", "-D", str(self.folder), "stop")

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(5)

    def suspend(self) -> None:
        """Stops every process of the server, as in a suspended virtual machine."""
        self._stopped = self._processes()
        for process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it continue."""
        for process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Rows of one statement outside any transaction."""
        where = f"host={self.folder} user=postgres dbname=postgres connect_timeout=5"
        with psycopg.connect(where, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def clone(self) -> Server:
        """A standby of this server. This server acknowledges a commit once both have it, from now on."""
        folder = new_folder()
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        # A copy of this setting would make the standby wait for a standby of its own.
        self._set("RESET synchronous_standby_names")
        self.run("pg_basebackup", "-h", str(self.folder), "-U", "postgres", "-D", str(folder), "-R", "-c", "fast")
        # The primary's socket is among its data, with a lock that names its process.
        (folder / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        standby = Server(folder, self._programs, self._user)
        standby.start()
        self._set("SET synchronous_standby_names = '*'")
        _until(lambda: bool(self.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")))
        return standby

    def _set(self, setting: str) -> None:
        self.execute(f"ALTER SYSTEM {setting}")
        self.execute("SELECT pg_reload_conf()")

    def _processes(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(int((self.folder / "postmaster.pid").read_text().splitlines()[0]))
            return [first, *first.children(recursive=True)]
        except (OSError, psutil.NoSuchProcess):
            return []


class Replicated:
    """Two servers, and proxies before whichever is the primary.

    Args:
        primary: a durable server.

    Attributes:
        clients: the proxy that clients use; it can go silent.
        spectators: another one, which is never silent.
    """

    def __init__(self, primary: Postgres) -> None:
        server = primary.server
        self.primary = Server(primary.folder, server.bin_path, server.system_user)
        self._standby = self.primary.clone()
        self._started = [self.primary, self._standby]
        self.clients, self.spectators = SilentProxy(self._connect), SilentProxy(self._connect)

    def url(self, database_url: str, proxy: SilentProxy) -> str:
        """The URL of one of the primary's databases through a proxy."""
        through = make_url(database_url).set(host="127.0.0.1", port=proxy.port, query={})
        return through.render_as_string(hide_password=False)

    def restart(self) -> None:
        """Stops the primary and starts it again."""
        self.primary.stop()
        self.primary.start()

    def crash(self) -> None:
        """Kills the primary with SIGKILL and starts it again."""
        self.primary.kill()
        self.primary.start()

    def fail_over(self) -> None:
        """Cuts the primary off without closing a connection, promotes the standby and gives it the address."""
        self.clients.fall_silent()
        old, self.primary = self.primary, self._standby
        self.primary.run("pg_ctl", "-w", "-D", str(self.primary.folder), "promote")
        self.clients.fail_over()
        # Without its standby it acknowledges no commit.
        old.kill()

    def replace_standby(self) -> None:
        """A new standby, after a failover."""
        self._standby = self.primary.clone()
        self._started.append(self._standby)

    def close(self) -> None:
        """Ends every server and removes its data."""
        for proxy in (self.clients, self.spectators):
            proxy.__exit__()
        self.primary.resume()
        for server in self._started:
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)

    def _connect(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX)
        found.connect(f"{self.primary.folder}/.s.PGSQL.5432")
        return found


@contextmanager
def replicated() -> Iterator[tuple[Replicated, str]]:
    """Both servers while the block runs, and the URL of a database on the primary."""
    postgres = Postgres(new_folder(), durable=True)
    url = postgres.database()
    both = Replicated(postgres)
    try:
        yield both, url
    finally:
        both.close()
        postgres.server.cleanup()


def _until(holds: Callable[[], bool]) -> None:
    """Retries until it holds; raises the last error if it never does."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            if holds():
                return
        except (subprocess.SubprocessError, psycopg.OperationalError, AssertionError):
            if time.monotonic() > until:
                raise
        if time.monotonic() > until:
            raise TimeoutError(f"a server was not ready within {_WAIT_SECONDS:g} s")
        time.sleep(0.1)
