"""Ports for servers that are told theirs, and processes of tests that run side by side."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final

#: Below the ports that systems hand out by themselves: nobody takes one between its choice and its use.
_FIRST: Final = 20_000
_EACH: Final = 500


def _own_ports() -> Iterator[int]:
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    # Two runs on one machine begin at different places.
    begin = os.getpid() % _EACH
    return (_FIRST + worker * _EACH + (begin + step) % _EACH for step in cycle(range(_EACH)))


_PORTS: Final = _own_ports()


def free_port() -> int:
    """A port on which nobody listens, and which no other process of this run is given."""
    for port in islice(_PORTS, _EACH):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(f"every port from {_FIRST} on is taken")
