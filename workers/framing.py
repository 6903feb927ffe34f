"""Framing: JSON documents over a pipe, each after its length in four bytes, little-endian."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

#: A longer document is treated as garbage.
MAX_BYTES = 64 * 2**20

#: Longest wait that `poll` takes, in milliseconds: 24 days. The reference of a problem too large for any GPU has more.
_LONGEST_MS = 2**31 - 1

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
    until = _until(seconds)
    body = json.dumps(document).encode()
    view = memoryview(_LENGTH.pack(len(body)) + body)
    try:
        while view:
            _await(fd, select.POLLOUT, until)
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
    until = _until(seconds)
    (length,) = _LENGTH.unpack(_exactly(fd, _LENGTH.size, until))
    if length > MAX_BYTES:
        raise Hangup(f"a document of {length:,} bytes was announced, more than {MAX_BYTES:,}")
    try:
        document = json.loads(_exactly(fd, length, until))
    except ValueError as error:
        raise Hangup(f"the input is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise Hangup("the input is not a JSON object")
    return document


def arrived(fd: int) -> bool:
    """Whether data can be read without waiting."""
    return _ready(fd, select.POLLIN, 0)


def _exactly(fd: int, count: int, until: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        _await(fd, select.POLLIN, until)
        part = os.read(fd, count - len(parts))
        if not part:
            raise Hangup("the pipe ended")
        parts += part
    return bytes(parts)


def _until(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _await(fd: int, event: int, until: float | None) -> None:
    if not _ready(fd, event, None if until is None else max(until - time.monotonic(), 0)):
        raise Silence


def _ready(fd: int, event: int, seconds: float | None) -> bool:
    # Not `select`, which takes no descriptor from 1,024 on: a program may have as many files open.
    waiting = select.poll()
    waiting.register(fd, event)
    return bool(waiting.poll(None if seconds is None else min(seconds * 1e3, _LONGEST_MS)))
