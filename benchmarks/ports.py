"""Free ports for servers that parallel processes start."""

from __future__ import annotations

import contextlib
import os
import socket
from itertools import cycle, islice
from typing import Final

#: Below the ephemeral ports, so that no other program takes a port between its choice and its use, or while a server
#: restarts.
_FIRST: Final = 20_000
#: Ports per process; consecutive process ids get different ranges.
_EACH: Final = 40
_PROCESSES: Final = 300
_BEGIN: Final = _FIRST + os.getpid() % _PROCESSES * _EACH
_PORTS: Final = cycle(range(_BEGIN, _BEGIN + _EACH))


def free_port() -> int:
    """A port that no server listens on."""
    for port in islice(_PORTS, _EACH):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(f"every port from {_BEGIN} to {_BEGIN + _EACH - 1} is taken")
