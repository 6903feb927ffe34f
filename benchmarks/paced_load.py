"""Requests at random moments of a fixed rate, whatever the server does: an open loop over kept connections.

wrk pauses its connections by whole milliseconds, so its requests come in bursts, and it counts from when it sent. Here
moments are exponential to the microsecond, and a request counts from when it was due, even if it had to wait for a free
connection.
"""

from __future__ import annotations

import gc
import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_LENGTH: Final = b"content-length: "
_END_OF_HEAD: Final = b"\r\n\r\n"
_PATIENCE_SECONDS: Final = 10.0
_RECEIVED_AT_ONCE: Final = 2**17


@dataclass(slots=True)
class _Connection:
    """One connection and the request that is under way on it."""

    socket: socket.socket
    due: float = 0.0
    answer: bytearray = field(default_factory=bytearray)

    def is_answered(self) -> bool:
        """Whether the whole answer is here.

        Raises:
            RuntimeError: the answer is a refusal.
        """
        head, found, body = self.answer.partition(_END_OF_HEAD)
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self.answer[:500].decode("latin-1"))
        return len(body) >= int(head.partition(_LENGTH)[2].partition(b"\r")[0])


def latencies_ms(
    port: int, paths: Sequence[str], secret: str, per_second: float, seconds: float, connections: int, seed: int
) -> list[float]:
    """Milliseconds from when each request was due to the last byte of its answer, in order of size.

    Occupies its core: waiting for the next moment by sleeping would be too coarse.

    Raises:
        RuntimeError: a request was refused, or the server stopped answering.
    """
    dice = random.Random(seed)
    tail = f" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n\r\n"
    requests = [f"GET {path}{tail}".encode() for path in dice.choices(paths, k=int(per_second * seconds * 1.5) + 100)]
    opened = [_Connection(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return sorted(_run(opened, requests, per_second, seconds, dice))
    finally:
        if was_collecting:
            gc.enable()
        for one in opened:
            one.socket.close()


def _run(
    opened: list[_Connection], requests: list[bytes], per_second: float, seconds: float, dice: random.Random
) -> list[float]:
    found, free, epoll = list[float](), deque(opened), select.epoll()
    by_number = {one.socket.fileno(): one for one in opened}
    with epoll:
        for one in opened:
            one.socket.setblocking(False)
            one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            epoll.register(one.socket, select.EPOLLIN)
        due = began = time.perf_counter()
        while due < began + seconds or len(free) < len(opened):
            now = time.perf_counter()
            while due <= now and due < began + seconds and free:
                one = free.popleft()
                one.due = due
                one.socket.send(requests.pop())
                due += dice.expovariate(per_second)
            for number, _ in epoll.poll(0):
                one = by_number[number]
                one.answer += one.socket.recv(_RECEIVED_AT_ONCE)
                if one.is_answered():
                    found.append((time.perf_counter() - one.due) * 1e3)
                    one.answer.clear()
                    free.append(one)
            if now > began + seconds + _PATIENCE_SECONDS:
                raise RuntimeError("the server stopped answering")
    return found
