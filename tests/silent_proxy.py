"""A TCP proxy that can go silent: it keeps every connection open and acknowledges every byte, but forwards none."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            if self._silent.is_set():
                threading.Thread(target=self._swallow, args=(near,), daemon=True).start()
                continue
            far = self._connect()
            self._sockets.append(far)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target, self._silent), daemon=True).start()

    @staticmethod
    def _swallow(source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while source.recv(65_536):
                pass

    def _forward(self, source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if silent.is_set():
                    self._swallow(source)
                    return
                target.sendall(data)
            if not silent.is_set():
                target.shutdown(socket.SHUT_WR)
