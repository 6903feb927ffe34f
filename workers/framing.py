"""Framing: JSON documents over a pipe, each after its length in four bytes, little-endian."""

from __future__ import annotations

import json
import math
import os
import select
import struct
import time
from typing import Any

#: A longer document is treated as garbage.
MAX_BYTES = 64 * 2**20

#: Deadlines count waits of this length. While a machine is paused the other end can't answer; a wait that a pause made
#: longer counts as what it was to last.
_WAIT_SECONDS = 1.0

_LENGTH = struct.Struct("<I")


class Silence(Exception):
    """The other end wrote, or read, no complete document before the deadline."""


class Hangup(Exception):
    """The other end is gone, or does not speak this protocol."""


def send(fd: int, document: dict[str, Any], seconds: float | None = None) -> None:
    """Writes one document, waiting at most `seconds` for the other end to read what a pipe does not hold.

    Raises:
        Silence: the deadline passed.
        Hangup: the other end is gone.
    """
    deadline = _Deadline(seconds)
    body = json.dumps(document).encode()
    view = memoryview(_LENGTH.pack(len(body)) + body)
    try:
        while view:
            deadline.wait(fd, select.POLLOUT)
            # A pipe that is ready takes this much at once; more might wait, without a deadline.
            view = view[os.write(fd, view[: select.PIPE_BUF]) :]
    except OSError as error:
        raise Hangup(f"the pipe is closed ({error.strerror})") from error


def receive(fd: int, seconds: float | None = None) -> dict[str, Any]:
    """Reads one document, waiting at most `seconds` for all of it.

    Raises:
        Silence: the deadline passed.
        Hangup: the pipe ended, or the input is not a document.
    """
    deadline = _Deadline(seconds)
    (length,) = _LENGTH.unpack(_exactly(fd, _LENGTH.size, deadline))
    if length > MAX_BYTES:
        raise Hangup(f"a document of {length:,} bytes was announced, more than {MAX_BYTES:,}")
    try:
        document = json.loads(_exactly(fd, length, deadline))
    except (ValueError, RecursionError) as error:
        raise Hangup(f"the input is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise Hangup("the input is not a JSON object")
    return document


def arrived(fd: int) -> bool:
    """Whether data can be read without waiting."""
    return _ready(fd, select.POLLIN, 0)


def _exactly(fd: int, count: int, deadline: _Deadline) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        deadline.wait(fd, select.POLLIN)
        part = os.read(fd, count - len(parts))
        if not part:
            raise Hangup("the pipe ended")
        parts += part
    return bytes(parts)


class _Deadline:
    """The seconds left for a document; None for no end."""

    def __init__(self, seconds: float | None) -> None:
        self._left = math.inf if seconds is None else seconds

    def wait(self, fd: int, event: int) -> None:
        """Waits for a pipe.

        Raises:
            Silence: no time is left.
        """
        while True:
            seconds = max(min(self._left, _WAIT_SECONDS), 0.0)
            began = time.monotonic()
            ready = _ready(fd, event, seconds)
            self._left -= min(time.monotonic() - began, seconds)
            if ready:
                return
            if self._left <= 0:
                raise Silence


def _ready(fd: int, event: int, seconds: float) -> bool:
    # Not `select`, which takes no descriptor from 1,024 on: a program may have as many files open.
    waiting = select.poll()
    waiting.register(fd, event)
    return bool(waiting.poll(seconds * 1e3))
