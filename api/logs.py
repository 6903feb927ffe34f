"""Logging: one JSON object per line on standard error, for our own records and for the server's."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, TextIO

#: Parent logger of this package; its children inherit the handler.
ROOT: Final = "gemmtune"
#: The server's logger; it reports each connection that the application gave up on, with a traceback.
_SERVER: Final = "_granian"
#: A request's line may wait this long, so that lines are written in batches.
_WAIT_SECONDS: Final = 0.2
#: Lines that wait while nobody reads the stream, about 30 MB; the oldest are lost first. The end waits this long.
_MOST_WAITING: Final = 100_000
_END_SECONDS: Final = 5.0


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `at`, `level`, `logger`, `event`, and the fields of `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class RequestLog:
    """One line per request, in the format of every other line, at a fifth of the cost of a log record.

    A background thread writes the lines in batches, a few times a second. A process that is killed may lose the last
    ones; `close` writes them. Those that the stream refuses, as on a full disk, are lost, and so are those beyond
    `_MOST_WAITING` while it takes none, as a pipe that nobody reads.

    Args:
        stream: output; None keeps no log.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_MOST_WAITING)
        # Writing out a date takes longer than the rest of a line.
        self._dated = (0, "")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        if stream is not None:
            self._thread.start()

    def add(
        self, request_id: str, method: str, path: str, status: int, seconds: float, caller: str | None, address: str
    ) -> None:
        """Adds a finished request, from any thread."""
        if self._stream is None:
            return
        # Only the path comes from the client as it is; the other fields contain safe characters only.
        now = time.time()
        second, date = self._dated
        if int(now) != second:
            second, date = self._dated = int(now), time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        self._lines.append(
            f'{{"at": "{date}.{int(now % 1 * 1e3):03}+00:00", "level": "info", "logger": "gemmtune.requests", '
            f'"event": "request", '
            f'"request_id": "{request_id}", "method": "{method}", "path": {quoted(path)}, "status": {status}, '
            f'"ms": {seconds * 1e3:.3f}, "caller": {quoted(caller) if caller else "null"}, '
            f'"address": {quoted(address)}}}\n'
        )

    def write(self) -> None:
        """Writes the lines added since the last call."""
        # Requests add lines meanwhile.
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if lines and self._stream is not None:
            # The thread has to go on, or lines would fill the memory; nobody can be told where errors are told.
            with suppress(OSError, ValueError):
                self._stream.write("".join(lines))
                self._stream.flush()

    def close(self) -> None:
        """Stops the thread and writes the remaining lines."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)
        # Where the thread still waits for the stream, so would this one.
        if not self._thread.is_alive():
            self.write()

    def _run(self) -> None:
        while not self._stop.wait(_WAIT_SECONDS):
            self.write()


def configure(level: int = logging.INFO) -> None:
    """Sends the log records of the service and of its server to standard error; `api.server` calls it once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, lowest in ((ROOT, level), (_SERVER, logging.CRITICAL)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(lowest)
