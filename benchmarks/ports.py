"""Free ports for servers that processes start side by side."""

from __future__ import annotations

import contextlib
import os
import socket
from itertools import cycle, islice
from typing import Final

#: Below the ports that systems hand out by themselves: nobody takes one between its choice and its use, or between
#: the end of a server and its next start.
_FIRST: Final = 20_000
#: Of each process; those that began one after another have different ones.
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
