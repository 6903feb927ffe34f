"""haproxy.cfg in front of the service: limits per address, and the client's address."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from tests.fleet import eventually
from tests.integration.attacks.conftest import PATH, Service

CONFIG = Path(__file__).resolve().parents[3] / "haproxy.cfg"
MOST_CONNECTIONS = 256

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not here: apt install haproxy")


@pytest.fixture(scope="module")
def port(service: Service) -> Iterator[int]:
    """The proxy's, once the service behind it counts as up."""
    port = free_port()
    variables = [f"GEMMTUNE_BIND=127.0.0.1:{port}", f"GEMMTUNE_SERVICE=127.0.0.1:{service.running.port}"]
    command = ["env", *variables, "haproxy", "-db", "-f", str(CONFIG)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as proxy:
        try:
            until = time.monotonic() + 30
            while ask(port, "/readyz")[0] != 200:
                assert proxy.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            yield port
        finally:
            proxy.kill()


def ask(port: int, path: str, *headers: str, source: str = "127.0.0.1") -> tuple[int, bytes]:
    """Status and text of an answer; status 0 without one."""
    head = "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""])
    try:
        with socket.create_connection(("127.0.0.1", port), 30, (source, 0)) as one:
            one.sendall(head.encode())
            answer = b"".join(iter(lambda: one.recv(65_536), b""))
    except OSError:
        return 0, b""
    return (int(answer.split(b" ")[1]), answer) if answer else (0, b"")


def test_one_address_has_256_connections_and_others_are_let_in(port: int, service: Service) -> None:
    with ExitStack() as opened:
        for _ in range(MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 30, ("127.0.0.9", 0)))
        time.sleep(0.5)
        token = f"Authorization: Bearer {service.other}"
        assert ask(port, PATH, token, source="127.0.0.9")[0] == 0
        assert ask(port, PATH, token, source="127.0.0.2")[0] == 200


def test_a_head_has_16_kib_and_5_seconds(port: int) -> None:
    assert ask(port, "/healthz", "X-Long: " + "a" * 10_000)[0] == 200
    assert ask(port, "/healthz", "X-Long: " + "a" * 20_000)[0] in (0, 400)
    assert ask(port, "/healthz", *(f"X-{place}: 1" for place in range(150)))[0] in (0, 400)
    with socket.create_connection(("127.0.0.1", port), 30) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        assert slow.recv(1_000).startswith(b"HTTP/1.1 408")


def test_the_service_is_told_the_address_of_the_connection(port: int, service: Service) -> None:
    # Unknown tokens count by address: the log names it.
    ask(port, PATH, "Authorization: Bearer wrong", "X-Forwarded-For: 192.0.2.1", source="127.0.0.7")
    eventually(lambda: '"address": "127.0.0.7"' in service.log.read_text(), 10)
    assert "192.0.2.1" not in service.log.read_text()
