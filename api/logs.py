"""Logs: one JSON object a line on standard error, the same for our records and for the server's."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Final, TextIO

#: Where records of this package go; its children inherit the handler.
ROOT: Final = "gemmtune"
_SERVER: Final = ("uvicorn", "uvicorn.error")
#: How long a line about a request may wait for others, so that they are written together.
_WAIT_SECONDS: Final = 0.2


class JsonLines(logging.Formatter):
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
    """A line a request, in the same form as every other line, for a fifth of what a log record costs.

    Lines are written together a few times a second by a thread of their own. A process that is killed may
    keep the last ones to itself; `close` writes them.

    Args:
        stream: where they go; None keeps no log.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        if stream is not None:
            self._thread.start()

    def note(
        self, request_id: str, method: str, path: str, status: int, seconds: float, caller: str | None, address: str
    ) -> None:
        """One request is over."""
        if self._stream is None:
            return
        # Only the path is made up by the client; the others are made of harmless characters.
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lines.append(
            f'{{"at": "{at}", "level": "info", "logger": "gemmtune.requests", "event": "request", '
            f'"request_id": "{request_id}", "method": "{method}", "path": {json.dumps(path)}, "status": {status}, '
            f'"ms": {seconds * 1e3:.3f}, "caller": {json.dumps(caller)}, "address": {json.dumps(address)}}}\n'
        )

    def write(self) -> None:
        """Writes what was noted."""
        lines, self._lines = self._lines, []
        if lines and self._stream is not None:
            self._stream.write("".join(lines))
            self._stream.flush()

    def close(self) -> None:
        """Writes the rest."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write()

    def _run(self) -> None:
        while not self._stop.wait(_WAIT_SECONDS):
            self.write()


def configure(level: int = logging.INFO) -> None:
    """Sends the records of the service and of its server to standard error; called once, by `api.server`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (ROOT, *_SERVER):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
