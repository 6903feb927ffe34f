"""Attacks on a service over its own port; each stays below what one machine can open.

    python -m benchmarks.attacks idle --port 8643 --seconds 10

A process of its own, so that the attacker's work is not measured as the service's. It connects from 127.0.0.9.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final

_FROM: Final = "127.0.0.9"
_MIB: Final = 2**20
#: How long a service may take to refuse what is too large.
_PATIENCE_SECONDS: Final = 30.0
_JSON: Final = "Content-Type: application/json\r\n"


@dataclass
class Seen:
    """What the attacker saw.

    Attributes:
        connections: how many it opened.
        closed: how many of them the service closed before the attack ended.
        sent_bytes: what the service, or its kernel, took.
        statuses: answers by status.
        most_answer_bytes: size of the largest answer.
    """

    connections: int = 0
    closed: int = 0
    sent_bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    most_answer_bytes: int = 0


class Attacker:
    """Sends requests that no well-behaved client sends.

    Args:
        secret: a valid token.
        path: of a question that the service can answer from its store.
        count: connections of attacks that use many.
    """

    def __init__(self, port: int, secret: str, path: str, seconds: float, count: int | None = None) -> None:
        self._port, self._path, self._count = port, path, count
        self._token = f"Authorization: Bearer {secret}\r\n"
        self._until = time.monotonic() + seconds
        self._opened: list[socket.socket] = []
        self.seen = Seen()

    def run(self, attack: str) -> None:
        """Attacks, and closes every connection afterwards."""
        try:
            ATTACKS[attack](self)
        finally:
            for one in self._opened:
                one.close()

    def header(self) -> None:
        """One header of 400 MiB."""
        self._pour(self._head("GET", "/v1/best", "") + b"X-Long: ", b"a" * _MIB, 400)

    def headers(self) -> None:
        """4 million headers on one connection."""
        self._pour(self._head("GET", "/v1/best", ""), b"x-one: 1\r\n" * 100_000, 40)

    def slow_headers(self) -> None:
        """3,000 connections that send a byte of a header each second."""
        self._trickle(self._head("GET", "/v1/best", "") + b"X-Slow: ", 3_000)

    def giant_body(self) -> None:
        """A body of 400 MiB in chunks, of a caller with a token."""
        head = self._head("POST", "/v1/best:batch", f"{self._token}{_JSON}Transfer-Encoding: chunked\r\n")
        self._pour(head + b"\r\n", b"100000\r\n" + b" " * _MIB + b"\r\n", 400)

    def declared_body(self) -> None:
        """A body of 400 MiB that is declared, of a caller with a token."""
        head = self._head("POST", "/v1/best:batch", f"{self._token}{_JSON}Content-Length: {400 * _MIB}\r\n")
        self._pour(head + b"\r\n", b" " * _MIB, 400)

    def slow_bodies(self) -> None:
        """1,000 connections that send a byte of a body each second."""
        head = self._head("POST", "/v1/best:batch", f"{self._token}{_JSON}Content-Length: 1000\r\n")
        self._trickle(head + b"\r\n", 1_000, b" ")

    def pipelined(self) -> None:
        """50 connections that send requests and read no answer."""
        request = self._head("GET", self._path, self._token) + b"\r\n"
        block, rests = request * (65_536 // len(request)), {one: b"" for one in self._many(50)}
        while time.monotonic() < self._until and rests:
            for one, rest in list(rests.items()):
                try:
                    part = rest or block
                    sent = one.send(part)
                    rests[one] = part[sent:]
                    self.seen.sent_bytes += sent
                except BlockingIOError:
                    pass
                except OSError:
                    self.seen.closed += 1
                    del rests[one]
            time.sleep(0.01)

    def idle(self) -> None:
        """5,000 connections that send nothing."""
        self._trickle(b"", 5_000, b"")

    def streams(self) -> None:
        """500 event streams of one token that are never read."""
        request = self._head("GET", "/v1/campaigns/1/events?seconds=60", self._token) + b"\r\n"
        self._trickle(request, 500, b"")

    def unread_batches(self) -> None:
        """50 answers of 10,000 problems each that are never read."""
        fields = dict(part.split("=") for part in self._path.partition("?")[2].split("&"))
        asked = {name: int(value) if value.isdigit() else value for name, value in fields.items()}
        body = json.dumps({"problems": [asked] * 10_000}).encode()
        head = self._head("POST", "/v1/best:batch", f"{self._token}{_JSON}Content-Length: {len(body)}\r\n")
        rests = {one: head + b"\r\n" + body for one in self._many(50)}
        while time.monotonic() < self._until:
            for one, rest in list(rests.items()):
                try:
                    rests[one] = rest[one.send(rest) :] if rest else rest
                except BlockingIOError:
                    pass
                except OSError:
                    self.seen.closed += 1
                    del rests[one]
            time.sleep(0.05)

    def bombs(self) -> None:
        """8 clients without a token that send 1 MiB of nested JSON, again and again."""
        self._repeat("/v1/campaigns", "Authorization: Bearer none\r\n", b"[" * (_MIB // 2) + b"]" * (_MIB // 2))

    def bad_bodies(self) -> None:
        """8 clients with a token that send 1 MiB of unknown fields, again and again."""
        fields = b",".join(b'"k%d":1' % place for place in range(80_000))
        self._repeat("/v1/campaigns", self._token, b"{" + fields + b"}")

    def tiny_chunks(self) -> None:
        """8 clients with a token that send a body in 20,000 chunks of one byte, again and again."""
        chunked = f"{self._token}Transfer-Encoding: chunked\r\n"
        self._repeat("/v1/best:batch", chunked, b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n", declared=False)

    def _head(self, method: str, path: str, fields: str) -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}".encode()

    def _open(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self._port), 10, (_FROM, 0))
        self._opened.append(found)
        self.seen.connections += 1
        return found

    def _many(self, count: int) -> list[socket.socket]:
        found = []
        for _ in range(self._count or count):
            with suppress(OSError):
                found.append(self._open())
                found[-1].setblocking(False)
        return found

    def _pour(self, begin: bytes, block: bytes, times: int) -> None:
        """Sends `begin`, then `block` many times, for as long as the service takes them; then reads what it says."""
        try:
            with self._open() as one:
                # Of a busy machine: the service may be slower than the attack.
                one.settimeout(_PATIENCE_SECONDS)
                one.sendall(begin)
                for _ in range(times):
                    one.sendall(block)
                    self.seen.sent_bytes += len(block)
                    if time.monotonic() > self._until:
                        break
                if not self._read(one):
                    self.seen.closed += 1
        except TimeoutError:
            pass
        except OSError:
            self.seen.closed += 1
        time.sleep(max(self._until - time.monotonic(), 0))

    def _trickle(self, begin: bytes, count: int, byte: bytes = b"a") -> None:
        """Opens many connections, and sends a byte on each every second."""
        alive = self._many(count)
        for one in alive:
            with suppress(OSError):
                one.send(begin)
        while time.monotonic() < self._until:
            time.sleep(1.0)
            alive = [one for one in alive if self._is_open(one, byte)]
        self.seen.closed = self.seen.connections - len(alive)

    def _is_open(self, one: socket.socket, byte: bytes) -> bool:
        try:
            one.send(byte)
            # Streams leave what they were sent unread; everybody else learns of an end by reading.
            return one.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _repeat(self, path: str, fields: str, body: bytes, declared: bool = True) -> None:
        """Sends a request again and again on 8 connections; a refusal's connection is opened again.

        Args:
            declared: with the length of the body.
        """
        length = f"Content-Length: {len(body)}\r\n" if declared else ""
        request = self._head("POST", path, f"{fields}{_JSON}{length}") + b"\r\n" + body

        def ask() -> None:
            while time.monotonic() < self._until:
                with suppress(OSError), self._open() as one:
                    with suppress(OSError):
                        one.sendall(request)
                    self._read(one)
                    self._opened.remove(one)

        clients = [threading.Thread(target=ask) for _ in range(self._count or 8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def _read(self, one: socket.socket) -> bool:
        """Reads one answer, with its head; False where the connection was closed before."""
        answer = b""
        while b"\r\n\r\n" not in answer and (part := one.recv(65_536)):
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields.get(b"content-length", b"0")) and (part := one.recv(65_536)):
            body += part
        if head:
            status = head.split(b" ")[1].decode()
            self.seen.statuses[status] = self.seen.statuses.get(status, 0) + 1
            self.seen.most_answer_bytes = max(self.seen.most_answer_bytes, len(body))
        return bool(head)


#: Attacks by name, in the order in which they are told.
ATTACKS: Final[dict[str, Callable[[Attacker], None]]] = {
    attack.__name__: attack
    for attack in (
        Attacker.header, Attacker.headers, Attacker.slow_headers, Attacker.giant_body, Attacker.declared_body,
        Attacker.slow_bodies, Attacker.pipelined, Attacker.idle, Attacker.streams, Attacker.unread_batches,
        Attacker.bombs, Attacker.bad_bodies, Attacker.tiny_chunks,
    )
}  # fmt: skip


def main() -> None:
    """Attacks, and prints what it saw as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("attack", choices=ATTACKS)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--secret", default="none")
    options.add_argument("--path", default="/v1/best?m=256&n=256&k=256")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--count", type=int)
    given = options.parse_args()
    attacker = Attacker(given.port, given.secret, given.path, given.seconds, given.count)
    attacker.run(given.attack)
    json.dump(asdict(attacker.seen), sys.stdout)


if __name__ == "__main__":
    main()
