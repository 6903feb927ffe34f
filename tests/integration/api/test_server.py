"""`gemmtune serve` as users run it, in its own process: output, log and shutdown."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import pytest

from api.server import listen
from benchmarks.ports import free_port
from tests.fleet import eventually
from tests.integration.api.asking import ASKED
from tests.shell import Shell
from tests.support import FACTS, keep_best
from tuner.errors import SettingsError
from tuner.evidence import tokens
from tuner.evidence.store import Store


@dataclass
class Serving:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def lines(self) -> list[str]:
        """Its output so far."""
        return self.log.read_text().splitlines()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    port = free_port()
    command = [sys.executable, "-m", "gemmtune", "serve", "--db", str(folder / "store.db"), "--port", str(port)]
    log = folder / "log"
    with log.open("w") as out, subprocess.Popen([*command, *arguments], stderr=out, text=True) as process:
        try:
            # One client: each reads the machine's certificates anew, which would take time from the service.
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as http:
                eventually(lambda: _ready(http, process, log))
            yield Serving(process, port, log)
        finally:
            process.kill()


def _ready(http: httpx2.Client, process: subprocess.Popen[str], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return http.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
    return tmp_path


def test_it_says_that_tokens_are_off_and_logs_json(folder: Path) -> None:
    with serving(folder) as ours:
        assert httpx2.get(f"{ours.url}/v1/best", params=ASKED).json()["source"] == "measured"
        assert any("tokens are off" in line for line in ours.lines())
        ours.process.send_signal(signal.SIGTERM)
        assert ours.process.wait(120) == 0
        logged = [json.loads(line) for line in ours.lines() if line.startswith("{")]
        asked = [line for line in logged if line["event"] == "request" and line["path"] == "/v1/best"]
        assert [(line["method"], line["status"], line["caller"]) for line in asked] == [("GET", 200, "local")]


def test_tokens_made_and_revoked_by_command_count_in_a_running_service(folder: Path) -> None:
    with serving(folder, "--auth", "on") as ours, Store.open(f"sqlite:///{folder}/store.db") as store:
        assert any("token create" in line for line in ours.lines())
        _, secret = tokens.make(store, "reader", ["read"])
        headers = {"Authorization": f"Bearer {secret}"}

        def status() -> int:
            return httpx2.get(f"{ours.url}/v1/best", params=ASKED, headers=headers).status_code

        eventually(lambda: status() == 200)
        tokens.revoke(store, "reader")
        eventually(lambda: status() == 401)


def test_head_leaves_its_connection_to_the_next_request(folder: Path) -> None:
    with serving(folder, "--auth", "on") as ours, socket.create_connection(("127.0.0.1", ours.port), 30) as asking:
        for path, status in (("/readyz", 200), ("/v1/best?m=256&n=256&k=256", 401), ("/nothing", 404)) * 2:
            asking.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head, rest = asking.recv(10_000).split(b"\r\n\r\n")
            assert (head.split()[1], rest) == (b"%d" % status, b"")
        asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asking.recv(10_000).endswith(b'{"status":"ok"}')


def test_told_to_stop_it_answers_what_is_under_way(folder: Path) -> None:
    with serving(folder) as ours, _batch_under_way(ours) as (asking, body):
        ours.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _listening(ours.port))
        asking.sendall(body)
        assert asking.recv(1000).startswith(b"HTTP/1.1 200")
        assert ours.process.wait(120) == 0


def test_told_twice_it_stops_at_once(folder: Path) -> None:
    with serving(folder) as ours, _batch_under_way(ours):
        ours.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _listening(ours.port))
        ours.process.send_signal(signal.SIGTERM)
        # A body under way has 20 s.
        assert ours.process.wait(18) == 0
        assert not [line for line in ours.lines() if "Traceback" in line]


def test_a_port_belongs_to_one_service(folder: Path) -> None:
    with serving(folder) as ours:
        refused = Shell(folder)("serve", "--db", str(folder / "store.db"), "--port", str(ours.port))
    assert (refused.code, "can't listen" in refused.err) == (3, True)


def test_it_cannot_be_opened_to_others_without_tokens(folder: Path) -> None:
    refused = Shell(folder)("serve", "--db", str(folder / "store.db"), "--host", "0.0.0.0", "--auth", "off")
    assert (refused.code, "tokens can't be off" in refused.sentence) == (3, True)


@contextmanager
def _batch_under_way(ours: Serving) -> Iterator[tuple[socket.socket, bytes]]:
    """A request whose body the service waits for: its connection, and the body."""
    body = json.dumps({"problems": [ASKED]}).encode()
    head = (f"POST /v1/best:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n")  # fmt: skip
    with socket.create_connection(("127.0.0.1", ours.port), 60) as asking:
        asking.sendall(head.encode())
        assert asking.recv(1000).startswith(b"HTTP/1.1 100")
        yield asking, body


def _listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except OSError:
        return False
    return True


def test_workers_are_told_the_heartbeat_that_the_service_was_set_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMTUNE_HEARTBEAT_SECONDS", "3.5")
    with serving(tmp_path) as service:
        worker = {"name": "node", "facts": asdict(FACTS)}
        welcome = httpx2.post(f"{service.url}/v1/workers", json=worker)
    assert (welcome.status_code, welcome.json()["heartbeat_seconds"]) == (201, 3.5)


def test_a_taken_port_is_one_sentence() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(SettingsError, match="--port"):
        listen("127.0.0.1", taken.getsockname()[1])
