"""TCP proxies: one that can go silent, and one that also notes which reports a service has taken.

A silent proxy keeps every connection open and acknowledges every byte, but forwards none: so a host looks that has
lost its network, or that was suspended.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from typing import Final, Self

_FINISH: Final = re.compile(rb"POST /v1/rounds/(\d+):finish HTTP/1\.1\r\n")
#: Every measurement of a report has this field once.
_FIELD_OF_A_MEASUREMENT: Final = b'"samples_us"'


class SilentProxy:
    """Forwards connections to a server until told to go silent.

    Args:
        connect: opens a connection to the server.

    Attributes:
        port: where it listens, on 127.0.0.1.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        self._silent = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        """From now on no connection, old or new, forwards anything."""
        self._silent.set()

    def fail_over(self) -> None:
        """New connections work again, as if another server had taken the address; the old ones stay silent."""
        self._silent = threading.Event()

    def observed(self) -> Observer:
        """What sees the bytes of a new connection."""
        return Observer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Ends the accept, which closing alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            # So that no thread waits for what is closed: the next socket may get its number.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            threading.Thread(target=self._serve, args=(near, self._silent), daemon=True).start()

    def _serve(self, near: socket.socket, silent: threading.Event) -> None:
        if silent.is_set():
            self._swallow(near)
            return
        try:
            far = self._connect()
        except OSError:
            near.close()
            return
        self._sockets.append(far)
        observer = self.observed()
        back = threading.Thread(target=self._forward, args=(far, near, silent, observer.answered), daemon=True)
        back.start()
        self._forward(near, far, silent, observer.asked)

    @staticmethod
    def _swallow(source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while source.recv(65_536):
                pass

    def _forward(
        self, source: socket.socket, target: socket.socket, silent: threading.Event, seen: Callable[[bytes], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if silent.is_set():
                    self._swallow(source)
                    return
                seen(data)
                target.sendall(data)
            if not silent.is_set():
                target.shutdown(socket.SHUT_WR)


class Observer:
    """Sees the bytes of one connection before they are forwarded."""

    def asked(self, data: bytes) -> None:
        """Bytes for the server."""

    def answered(self, data: bytes) -> None:
        """Bytes for the client."""


class ReportingProxy(SilentProxy):
    """A proxy in front of services that notes the reports that they have taken.

    Attributes:
        taken: measurements of every report that was answered with 204, by the number of its round. The client may
            never have received the answer.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.taken: dict[int, int] = {}
        super().__init__(connect)

    def observed(self) -> Observer:
        """Follows the requests of a new connection, one after the other."""
        return _Reports(self.taken)


class _Reports(Observer):
    def __init__(self, taken: dict[int, int]) -> None:
        self._taken = taken
        self._request = bytearray()
        self._answered = True

    def asked(self, data: bytes) -> None:
        if self._answered:
            self._request.clear()
            self._answered = False
        self._request += data

    def answered(self, data: bytes) -> None:
        # A refusal may come before the whole request; only the first bytes of an answer hold its status.
        if not self._answered and data.startswith(b"HTTP/1.1 204") and (report := _FINISH.match(self._request)):
            self._taken[int(report[1])] = self._request.count(_FIELD_OF_A_MEASUREMENT)
        self._answered = True
