"""Floods of one client: the service cuts them off, and another client notices nothing."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from api.streams import MOST_CALLER_STREAMS
from tests.fleet import eventually
from tests.integration.attacks.conftest import Others, Service

MIB = 2**20
#: Whatever a refusal says, in bytes.
SMALL_ANSWER = 2_000


@pytest.mark.parametrize("name", ["header", "headers", "giant_body", "declared_body"])
def test_what_is_too_large_is_cut_off_early(service: Service, name: str) -> None:
    attacker = service.attack(0.5)
    with Others(service):
        attacker.run(name)
    assert attacker.seen.closed or attacker.seen.statuses in ({"413": 1}, {"431": 1})
    # A few buffers, of 400 MiB.
    assert attacker.seen.sent_bytes < 32 * MIB


def test_a_hundred_headers_are_enough(service: Service) -> None:
    def status(count: int) -> int:
        headers = {f"x-{place}": "1" for place in range(count)}
        return _status(service, _head("GET", "/healthz", headers))

    assert (status(50), status(150)) == (200, 431)


def test_connections_that_send_or_read_slowly_are_closed(service: Service) -> None:
    """All kinds at once, because each takes its time-out: no head, half a head, half a body, unread answers."""
    token = {"Authorization": f"Bearer {service.attacker}"}
    body = _head("POST", "/v1/best:batch", token | {"Content-Type": "application/json", "Content-Length": "100"})
    kept = _head("GET", "/healthz", {})
    answers = _head("GET", "/v1/best?m=256&n=256&k=256", token) * 30_000
    with ExitStack() as opened, Others(service):
        slow = {
            kind: [opened.enter_context(_connection(service)) for _ in range(10)]
            for kind in ("idle", "kept alive", "half a head", "half a body", "unread")
        }
        begins = {"idle": b"", "kept alive": kept, "half a head": kept[:-2], "half a body": body, "unread": answers}
        for kind, begin in begins.items():
            for one in slow[kind]:
                one.settimeout(0.2)
                _send(one, begin)
        until = time.monotonic() + 60
        while any(slow.values()) and time.monotonic() < until:
            time.sleep(0.5)
            slow = {kind: [one for one in alive if not _closed(one, kind)] for kind, alive in slow.items()}
    assert {kind: len(alive) for kind, alive in slow.items() if alive} == {}


def test_requests_in_the_pipe_wait_until_answers_are_read(service: Service) -> None:
    attacker = service.attack(2.0, 10)
    with Others(service):
        attacker.run("pipelined")
    # What the kernel buffers, on both sides.
    assert attacker.seen.sent_bytes < 200 * MIB


def test_five_hundred_idle_connections_keep_nobody_out(service: Service) -> None:
    attacker = service.attack(2.0, 500)
    with Others(service):
        attacker.run("idle")
    assert attacker.seen.connections == 500


def test_one_token_has_its_share_of_event_streams(service: Service) -> None:
    request = _head("GET", "/v1/campaigns/1/events?seconds=60", {"Authorization": f"Bearer {service.attacker}"})
    with ExitStack() as opened, Others(service):
        streams = [opened.enter_context(_connection(service)) for _ in range(40)]
        for stream in streams:
            stream.sendall(request)
        statuses = sorted(_read_status(stream) for stream in streams)
        assert statuses == [200] * MOST_CALLER_STREAMS + [429] * (40 - MOST_CALLER_STREAMS)
        assert service.ask(path="/v1/campaigns/1/events?seconds=0.1").status_code == 200
    _wait_for_stream(service)


def test_answers_that_nobody_reads_take_little_memory(service: Service) -> None:
    attacker = service.attack(2.0, 20)
    with Others(service):
        attacker.run("unread_batches")


def test_a_body_is_not_read_before_its_sender_is_known(service: Service) -> None:
    headers = {"Authorization": "Bearer wrong", "Content-Type": "application/json", "Content-Length": str(MIB),
               "Expect": "100-continue"}  # fmt: skip
    # Not "100 Continue".
    assert _status(service, _head("POST", "/v1/campaigns", headers)) == 401


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (MIB // 2) + b"]" * (MIB // 2),
        b'{"a":' * (MIB // 8),
        b"1" * MIB,
        b'{"name": 1e' + b"9" * 1000 + b"}",
        b"1," * (MIB // 4) + b"1",
        b"{" + b",".join(b'"k%d":1' % place for place in range(80_000)) + b"}",
        json.dumps({"a" * (MIB - 20): 1}).encode(),
        json.dumps({"name": "a" * (MIB - 20)}).encode(),
        json.dumps({"name": "a", "devices": [{"name": "b"}], "problems": [{}] * 10_000}).encode(),
        json.dumps({"name": "a", "devices": [{"name": "b"}], "problems": [{"dtype": "c" * MIB}]}).encode(),
        b'{"problems": [' + b"{}," * MIB + b"{}]}",
    ],
    ids=["nested lists", "nested objects", "number", "exponent", "not JSON", "fields", "name of a field", "text",
         "problems", "word", "values"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/campaigns", "/v1/best:batch"])
def test_the_answer_to_a_bad_body_is_small(service: Service, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{service.running.port}{path}"
    # Whoever has just sent a bad body waits for a second.
    known = service.unused.pop()
    with Others(service):
        asked = {token: _post(url, body, headers | {"Authorization": f"Bearer {token}"}) for token in ("wrong", known)}
    assert asked["wrong"][0] == 401
    status, size = asked[known]
    assert status in (400, 413, 422)
    assert size < SMALL_ANSWER


@pytest.mark.parametrize(
    "chunks", [b"zz\r\n{}\r\n0\r\n\r\n", b"5\r\n{}\r\n0\r\n\r\n", b"f" * 20 + b"\r\n{}\r\n", b"2\r\n{"]
)
@pytest.mark.parametrize("path", ["/v1/campaigns", "/v1/best:batch", "/nowhere"])
def test_a_body_of_malformed_chunks_is_refused_as_such(service: Service, path: str, chunks: bytes) -> None:
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked",
               "Authorization": f"Bearer {service.attacker}"}  # fmt: skip
    with _connection(service) as one:
        one.sendall(_head("POST", path, headers) + chunks)
        one.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: one.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["type"] == "/problems/malformed-body"


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_failure_of_the_service(service: Service) -> None:
    headers = {"Content-Length": "100", "Authorization": f"Bearer {service.attacker}", "X-Request-Id": "left"}
    with _connection(service) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(_head("POST", "/v1/campaigns", headers) + b"{")
    eventually(lambda: '"left"' in service.log.read_text(), 20)
    said = [json.loads(line) for line in service.log.read_text().splitlines() if '"left"' in line]
    assert [(line["event"], line["level"], line["status"]) for line in said] == [("request", "info", 400)]


def test_a_flood_of_bad_bodies_is_spaced_out(service: Service) -> None:
    attacker = service.attack(2.0, 4)
    with Others(service):
        attacker.run("bad_bodies")
    assert set(attacker.seen.statuses) <= {"422", "429"}
    assert attacker.seen.most_answer_bytes < SMALL_ANSWER


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _connection(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.running.port), 30)


def _send(one: socket.socket, text: bytes) -> None:
    """Sends what the other side takes."""
    with suppress(OSError):
        one.sendall(text)


def _status(service: Service, request: bytes) -> int:
    with _connection(service) as one:
        one.sendall(request)
        return _read_status(one)


def _read_status(one: socket.socket) -> int:
    return int(one.recv(1_000).split(b" ")[1])


def _closed(one: socket.socket, kind: str) -> bool:
    """Whether the service has closed a connection; answers are left unread on purpose, elsewhere they are read."""
    try:
        if kind == "unread":
            return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1
        return one.recv(10_000) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, int]:
    """Status of the answer, and its bytes; the service may answer and close before it has read the body."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), 60) as one:
        request = _head("POST", f"/{path}", headers | {"Content-Length": str(len(body))}) + body
        sender = threading.Thread(target=_send, args=(one, request))
        sender.start()
        answer = b""
        try:
            while b"\r\n\r\n" not in answer and (part := one.recv(65_536)):
                answer += part
        finally:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            sender.join()
    head = answer.partition(b"\r\n\r\n")[0].lower()
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split(b" ")[1]), int(length.partition(b":")[2])


def _wait_for_stream(service: Service) -> None:
    """The streams that were closed no longer count."""
    until = time.monotonic() + 30
    while service.ask(path="/v1/campaigns/1/events?seconds=0.1", secret=service.attacker).status_code == 429:
        assert time.monotonic() < until
        time.sleep(0.2)
