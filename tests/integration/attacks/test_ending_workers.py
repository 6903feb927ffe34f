"""A worker that is told to end ends within 30 s, whatever the service says or leaves unsaid."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.silent_proxy import SilentProxy
from tests.fleet import CALM, Listening, eventually
from tests.support import DEVICE, PROBLEM
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest
from tuner.settings import Settings

#: What the workers here have to end; by default they have more, and less than 30 s.
END_SECONDS = 6
#: Answers of a service that is broken in one way; each gets a connection.
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


def hang(connection: socket.socket) -> None:
    """Reads everything and answers nothing."""
    while connection.recv(65_536):
        pass


def refuse(connection: socket.socket) -> None:
    """503 for ever."""
    while connection.recv(65_536):
        connection.sendall(UNAVAILABLE)


def trickle(connection: socket.socket) -> None:
    """A byte a second, so that no read times out."""
    connection.recv(65_536)
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: " + b"x" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(1)


@contextmanager
def broken_service(behave: Callable[[socket.socket], None]) -> Iterator[tuple[str, threading.Event]]:
    """A listening socket that treats every connection like this; its URL, and an event set by the first one."""
    listener, asked = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def treat(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            asked.set()
            behave(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=treat, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.close()


@contextmanager
def worker(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`gemmtune worker run` on the recorded device."""
    command = ["env", f"GEMMTUNE_END_SECONDS={END_SECONDS}", sys.executable, "-m", "gemmtune", "worker", "run",
               "--device", "recorded:h200", "--url", url]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def ends(process: subprocess.Popen[bytes]) -> float:
    """Tells the worker to end; seconds until it has."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(35)
    return time.monotonic() - started


@pytest.mark.parametrize("behave", [hang, refuse, trickle])
def test_a_worker_ends_while_its_service_is_broken(behave: Callable[[socket.socket], None], tmp_path: Path) -> None:
    with broken_service(behave) as (url, asked), worker(url, tmp_path) as process:
        assert asked.wait(60), (tmp_path / "log").read_text()
        time.sleep(1)
        assert ends(process) < END_SECONDS + 10


def test_a_worker_ends_while_its_connections_are_half_open_in_a_round(tmp_path: Path) -> None:
    request = CampaignRequest("test", (PROBLEM,), ((DEVICE, "recorded"),), CampaignBudget(candidates=2_000, rounds=11))
    with Listening(f"sqlite:///{tmp_path}/store.db", CALM) as service:
        Campaigns(service.store).create(request)
        with (
            SilentProxy(lambda: socket.create_connection(("127.0.0.1", service.port))) as proxy,
            worker(f"http://127.0.0.1:{proxy.port}", tmp_path) as process,
        ):
            eventually(lambda: _running(service.store), 60)
            proxy.fall_silent()
            time.sleep(1)
            assert ends(process) < END_SECONDS + 10


def test_by_default_a_worker_has_less_than_thirty_seconds() -> None:
    assert Settings().end_seconds <= 27


def _running(store: Store) -> bool:
    return store.counts()["round"] > 0
